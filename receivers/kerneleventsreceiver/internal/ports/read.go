// Package ports knows in which state the ports of RDMA adapters are, and since when one that
// was active is not. It has no clock; the caller passes the time in.
package ports

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Port is a port of an RDMA adapter at one moment.
type Port struct {
	Device    string // mlx5_0
	Number    int64
	Interface string // the only network interface of its adapter, "" where that is not known or in a container
	Ethernet  bool   // it is as its interface is
	State     string // active, down, init, armed, active_defer; "" where it cannot be read
	Physical  string // of a port that is not active: polling, disabled, link_up, …; "" where it cannot be read
	Reason    Reason
}

// Reason is why a port is not active, "" where its state does not say.
type Reason string

// The reasons.
const (
	SwitchedOff   Reason = "switched_off"   // on this host, by somebody
	NoLink        Reason = "no_link"        // nothing answers at the other end
	NotConfigured Reason = "not_configured" // it has a link, and waits for a subnet manager
)

const active = "active"

// Active reports whether the port carries traffic.
func (p *Port) Active() bool { return p.State == active }

// most bounds the ports that are looked at: adapters with a thousand virtual functions exist.
const most = 1024

// Read reads the ports from the sysfs mounted at root ("/sys"). A driver asks its adapter for
// the state (ib_query_port), so that a broken adapter can make the caller wait for a minute. With
// an error it is not known which ports there are.
func Read(root string) (ports []Port, err error) {
	class := filepath.Join(root, "class/infiniband")
	devices, err := list(class)
	if err != nil {
		return nil, err
	}
	for _, device := range devices {
		numbers, err := list(filepath.Join(class, device.Name(), "ports"))
		if err != nil {
			return nil, err
		}
		for _, number := range numbers {
			if n, err := strconv.ParseInt(number.Name(), 10, 32); err == nil && len(ports) < most {
				ports = append(ports, readPort(class, device.Name(), n))
			}
		}
	}
	return ports, nil
}

// list is what is in a folder; nothing where there is none.
func list(folder string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

func readPort(class, device string, number int64) Port {
	folder := filepath.Join(class, device, "ports", strconv.FormatInt(number, 10))
	p := Port{Device: device, Number: number, State: word(folder, "state")}
	interfaces := filepath.Join(class, device, "device/net")
	if names, err := os.ReadDir(interfaces); err == nil && len(names) == 1 {
		p.Interface = names[0].Name()
	}
	p.Ethernet = text(folder, "link_layer") == "Ethernet"
	if p.Active() || p.State == "" {
		return p
	}
	p.Physical = word(folder, "phys_state")
	if p.Ethernet {
		p.Reason = ofInterface(interfaces, p.Interface)
	} else {
		p.Reason = ofPhysical(p.Physical, p.State)
	}
	return p
}

// ofPhysical reads the reason from the physical state of an InfiniBand port (InfiniBand
// Architecture Specification, volume 1, PortInfo). A subnet manager takes a port that has a link
// from init by armed to active.
func ofPhysical(physical, state string) Reason {
	switch physical {
	case "disabled":
		return SwitchedOff
	case "sleep", "polling", "port_configuration_training", "link_error_recovery":
		return NoLink
	case "link_up":
		if state == "init" || state == "armed" {
			return NotConfigured
		}
	}
	return ""
}

// ofInterface reads the reason from the interface of an Ethernet port. Its physical state says
// nothing: mlx5, bnxt_re and others call each port without a carrier disabled (mlx5_query_port_roce,
// drivers/infiniband/hw/mlx5/main.c). A port of a bond is as the bond is, so that the interface
// of its adapter says nothing either.
func ofInterface(interfaces, name string) Reason {
	if name == "" {
		return ""
	}
	folder := filepath.Join(interfaces, name)
	if _, err := os.Lstat(filepath.Join(folder, "master")); err == nil {
		return ""
	}
	flags, err := strconv.ParseUint(text(folder, "flags"), 0, 32)
	const up = 1 // IFF_UP, include/uapi/linux/if.h
	switch {
	case err != nil:
		return ""
	case flags&up == 0:
		return SwitchedOff
	}
	return NoLink
}

// word is the name in a file such as "4: ACTIVE", "2: Polling" or "6: LinkErrorRecovery", in
// lower case with underscores (state_show and phys_state_show, drivers/infiniband/core/sysfs.c).
func word(folder, file string) string {
	_, name, found := strings.Cut(text(folder, file), ": ")
	if !found || strings.HasPrefix(name, "<") { // "<unknown>"
		return ""
	}
	var b strings.Builder
	shout := name == strings.ToUpper(name)
	for i, r := range name {
		switch {
		case r == ' ':
			b.WriteByte('_')
			continue
		case i > 0 && !shout && r >= 'A' && r <= 'Z' && name[i-1] >= 'a' && name[i-1] <= 'z':
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// longest is more than any of these files holds.
const longest = 64

func text(folder, file string) string {
	data, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil || len(data) > longest {
		return ""
	}
	return strings.TrimSpace(string(data))
}
