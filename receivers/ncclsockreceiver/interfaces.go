package ncclsockreceiver

import (
	"net/netip"

	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// mostSought bounds the interfaces that are looked for at once: to read a routing table of 1 MiB,
// as anybody can have one in a namespace of his own, takes milliseconds.
const mostSought = 16

// interfaces are those that local addresses are of. What was found holds as long as each round
// asks for it; what was not is looked for again.
type interfaces struct {
	find func(pid uint32, local netip.Addr) (string, error)

	now, before map[place]string // found, by round
	sought      int              // in this round
}

// place is a local address in a network namespace, or of a process whose namespace is not known.
type place struct {
	netns uint64
	pid   uint32
	local netip.Addr
}

// begin starts a round.
func (i *interfaces) begin() { i.now, i.before, i.sought = map[place]string{}, i.now, 0 }

// of is the interface that has a local address of a process, "" where it is not known.
func (i *interfaces) of(p *stall.Process, local netip.Addr) string {
	at := place{netns: p.NetNS, local: local}
	if p.NetNS == 0 {
		at.pid = p.PID
	}
	name := i.now[at]
	if name == "" {
		name = i.before[at]
	}
	if name == "" && i.sought < mostSought {
		i.sought++
		name, _ = i.find(p.PID, local) // not known is no error: the address is told
	}
	if name != "" {
		i.now[at] = name
	}
	return name
}
