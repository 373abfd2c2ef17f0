//go:build linux

// Package hostnet makes hosts that are no more than network namespaces, cabled to a
// router. Jobs that tests break run in them.
package hostnet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Network is a router and hosts, each a namespace without a name: it is gone
// with the last process and descriptor that holds it. Routing needs no bridge,
// which not every kernel has.
type Network struct {
	router netns.NsHandle
	hosts  []netns.NsHandle
}

// Address is that of host i; the router's end of the cable is one below.
func Address(i int) net.IP        { return net.IPv4(10, 77, byte(i), 2).To4() }
func gatewayAddress(i int) net.IP { return net.IPv4(10, 77, byte(i), 1).To4() }

// New makes a network of so many hosts. It takes CAP_NET_ADMIN and CAP_SYS_ADMIN.
func New(hosts int) (_ *Network, err error) {
	n := &Network{router: netns.None()}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.router, err = newNamespace(); err != nil {
		return nil, err
	}
	for i := range hosts {
		host, err := newNamespace()
		if err != nil {
			return nil, err
		}
		n.hosts = append(n.hosts, host)
		if err := n.cable(i); err != nil {
			return nil, fmt.Errorf("connect host %d: %w", i, err)
		}
	}
	return n, n.route()
}

// newNamespace makes a network namespace and leaves the thread where it was.
func newNamespace() (netns.NsHandle, error) {
	made := netns.None()
	err := onThreadOfItsOwn(func() (err error) {
		if made, err = netns.New(); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(loopback)
	})
	return made, err
}

// onThreadOfItsOwn runs fn on a thread that may change its namespace: it ends
// with fn.
func onThreadOfItsOwn(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the runtime ends the thread
		done <- fn()
	}()
	return <-done
}

// Within runs fn on a thread in the namespace of a host: a process that it starts and a
// socket that it opens are on that host.
func (n *Network) Within(host int, fn func() error) error { return in(n.hosts[host], fn) }

// in runs fn in a namespace.
func in(ns netns.NsHandle, fn func() error) error {
	return onThreadOfItsOwn(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return fn()
	})
}

// cable joins host i and the router.
func (n *Network) cable(i int) error {
	here, there := fmt.Sprintf("host%d", i), "eth0"
	err := in(n.router, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: here}, PeerName: there, PeerNamespace: netlink.NsFd(int(n.hosts[i]))}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("make a veth pair: %w", err)
		}
		return plug(here, gatewayAddress(i))
	})
	if err != nil {
		return err
	}
	return in(n.hosts[i], func() error {
		if err := plug(there, Address(i)); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: gatewayAddress(i)})
	})
}

func plug(name string, address net.IP) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	mask := net.CIDRMask(24, 32)
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: address, Mask: mask}}); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// route lets the router forward.
func (n *Network) route() error {
	return in(n.router, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	})
}

// table is that of the rules in the router.
const table = "hostnet"

// Drop lets the router swallow what host from sends to host to.
func (n *Network) Drop(from, to int) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(n.router)))
	if err != nil {
		return err
	}
	own := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	accept := nftables.ChainPolicyAccept
	chain := c.AddChain(&nftables.Chain{
		Name: "forward", Table: own, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter, Policy: &accept,
	})
	// Source and destination of an IPv4 header stand side by side at offset 12.
	c.AddRule(&nftables.Rule{Table: own, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 8},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: append(append([]byte{}, Address(from)...), Address(to)...)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("drop packets: %w", err)
	}
	return nil
}

// Heal lets everything pass again.
func (n *Network) Heal() error {
	c, err := nftables.New(nftables.WithNetNSFd(int(n.router)))
	if err != nil {
		return err
	}
	c.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: table})
	return c.Flush()
}

// Plug brings the link of a host up or takes it down. Its route leaves with the link, and
// comes back with it.
func (n *Network) Plug(host int, up bool) error {
	return n.Within(host, func() error {
		link, err := netlink.LinkByName("eth0")
		switch {
		case err != nil:
			return err
		case !up:
			return netlink.LinkSetDown(link)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Gw: gatewayAddress(host)})
	})
}

// Close lets the namespaces go. They stay while a process is in them.
func (n *Network) Close() error {
	var errs []error
	for _, ns := range append(n.hosts, n.router) {
		if ns.IsOpen() {
			errs = append(errs, unix.Close(int(ns)))
		}
	}
	n.hosts, n.router = nil, netns.None()
	return errors.Join(errs...)
}
