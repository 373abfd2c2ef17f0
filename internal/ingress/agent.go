package ingress

import (
	"net"
	"time"

	"go.opentelemetry.io/collector/client"

	"github.com/tracecoreai/tracecore/internal/peer"
)

// Agent is a sender that proved to be part of this tracecore.
type Agent struct {
	// Host is the only machine that it speaks of. A relay hands on the records of
	// many machines and has none.
	Host  string
	Node  bool // Host is the name of a Kubernetes node
	Relay bool
	// Behind is by how much its clock is behind that of this machine; below zero it is
	// ahead. 0 where it is right, or not known.
	Behind time.Duration
}

// GetAttribute implements client.AuthData.
func (a Agent) GetAttribute(name string) any {
	switch name {
	case "host":
		return a.Host
	case "relay":
		return a.Relay
	}
	return nil
}

// GetAttributeNames implements client.AuthData.
func (Agent) GetAttributeNames() []string { return []string{"host", "relay"} }

func (a Agent) machine() machine {
	m := machine{host: a.Host}
	if a.Node {
		m.node = a.Host
	}
	return m
}

// sameMachine reports whether a batch was sent on this machine. An address that is
// not known is another machine's.
func sameMachine(address net.Addr) bool {
	switch a := address.(type) {
	case *net.UnixAddr, peer.Addr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.IPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

// rights are what the sender of a batch may say.
type rights struct {
	trust   string // of its records; "" keeps the trust that they have
	events  maker  // whose events it may send: those of this maker and of lesser ones
	hosts   hosts
	machine machine // that hosts is about
	behind  clock
}

// hosts says which machine a sender may name.
type hosts int

const (
	noHost     hosts = iota // none: nothing shows where it is, nor who
	thisHost                // records get the machine, or the address, whatever they name
	namedHost               // the same, where they name one
	provenHost              // the machine; records about another are refused
	anyHost                 // all
)

const (
	trustKey    = "tracecore.trust"
	hostNameKey = "host.name"
	nodeNameKey = "k8s.node.name"
)

// rightsOf says what the sender of a batch may say. Only the type Agent counts:
// another authenticator may admit a sender, but does not make an agent of it.
func (s *stage) rightsOf(info client.Info) rights {
	agent, proven := info.Auth.(Agent)
	switch {
	case s.source == Node:
		return rights{trust: "claimed", hosts: namedHost, machine: s.here}
	case s.senders == Agents, proven && agent.Relay:
		return rights{hosts: anyHost, events: judge}
	case proven && agent.Host != "":
		return rights{hosts: provenHost, machine: agent.machine(), events: sensor, behind: clock(agent.Behind)}
	case s.senders == OwnNode, sameMachine(info.Addr):
		return rights{trust: "foreign", hosts: thisHost, machine: s.here}
	}
	if from := addressOf(info.Addr); from != "" {
		return rights{trust: "foreign", hosts: thisHost, machine: machine{host: from}}
	}
	return rights{trust: "foreign", hosts: noHost}
}

const addressPrefix = "address "

// addressOf names a machine of which nothing is known but where it sends from, "" where not
// even that is. It is no name that a machine can have, and is there to tell strangers apart:
// none takes the room of another, or speaks for his job. Who has one IPv6 address may have
// all of its /64 (RFC 4862).
func addressOf(address net.Addr) string {
	var ip net.IP
	switch a := address.(type) {
	case *net.TCPAddr:
		ip = a.IP
	case *net.IPAddr:
		ip = a.IP
	}
	switch {
	case ip.To4() != nil:
		return addressPrefix + ip.String()
	case ip.To16() != nil:
		return addressPrefix + ip.Mask(net.CIDRMask(64, 128)).String() + "/64"
	}
	return ""
}
