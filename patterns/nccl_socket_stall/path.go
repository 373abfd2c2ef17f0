package ncclsocketstall

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// again is by how much the onsets of two paths may differ and be one moment: ages
// are measured in ticks of the kernel's clock.
const again = int64(50e6)

// path finds the worst of the paths on which packets do not get through: the one
// whose far end most hosts cannot reach, then the first. Sockets of the store and
// of bootstrap that never connected are another pattern's (nccl_bootstrap_timeout).
func (g *graph) path() *conclusion {
	reached := map[netip.Addr]map[string]bool{} // far address → hosts that cannot reach it
	var broken []*socketstall.Stall
	for _, s := range g.active {
		if s.Cause == socketstall.Network || s.Cause == socketstall.Connecting && !s.Kind.Joining() {
			broken = append(broken, s)
			at := s.Peer.Addr()
			if reached[at] == nil {
				reached[at] = map[string]bool{}
			}
			reached[at][g.procs[s.Process].Host] = true
		}
	}
	var worst *socketstall.Stall
	for _, s := range broken {
		if worst == nil || cmp.Or(
			cmp.Compare(len(reached[worst.Peer.Addr()]), len(reached[s.Peer.Addr()])),
			cmp.Compare(s.Onset/again, worst.Onset/again), cmp.Compare(s.Process, worst.Process), s.Peer.Compare(worst.Peer), s.Local.Compare(worst.Local),
		) < 0 {
			worst = s
		}
	}
	if worst == nil {
		return nil
	}
	return g.brokenPath(worst, len(reached[worst.Peer.Addr()]))
}

func (g *graph) brokenPath(s *socketstall.Stall, hosts int) *conclusion {
	c := &conclusion{Held: heldPath, Culprit: s.Process, Stall: s, Certain: true}
	from, to := g.who(s.Process)+" at "+address(s.Local, "an unknown address"), g.nameOfPeer(s)
	if g.peer(s) != "" || s.PeerRank >= 0 {
		to += " at " + address(s.Peer, "an unknown address")
	}
	switch {
	case s.Cause == socketstall.Connecting && s.Error == "ECONNREFUSED":
		c.Held, c.Certain = heldRefused, false
		c.Shows = fmt.Sprintf("%s refuses connections of %s: nobody listens there", to, from)
		c.Missing = "any record of a process that listens at " + address(s.Peer, "the other end")
		return c
	case s.Cause == socketstall.Connecting:
		c.Certain = false
		c.Shows = fmt.Sprintf("%s gets no answer to its connection from %s", from, to)
		c.Missing = "whether the host of the other end is up"
	default:
		c.Shows = fmt.Sprintf("what %s sends to %s is not acknowledged, and sent again in vain", from, to)
	}
	c.Shows += "; " + g.direction(s, hosts)
	return c
}

// direction says what the other end tells of the path.
func (g *graph) direction(s *socketstall.Stall, hosts int) string {
	far := g.peer(s)
	if far == "" && hosts > 1 {
		return fmt.Sprintf("%d hosts cannot reach that address, and no record came from it: the machine is down, or cut off", hosts)
	}
	if far == "" {
		return "no record came from the other end: its machine is down, cut off, or runs no agent"
	}
	back, waits := false, false
	for _, e := range g.out[far] {
		if e.to != s.Process {
			continue
		}
		back = back || e.stall.Cause == socketstall.Network || e.stall.Cause == socketstall.Connecting
		waits = waits || e.stall.Cause == socketstall.Waiting
	}
	switch {
	case back:
		return "nor in the other direction"
	case waits:
		return "the other end waits for it: packets are lost on the way there"
	default:
		return "of the other direction nothing is known"
	}
}

// address writes an address and port, or what stands for one that is not known.
func address(at netip.AddrPort, otherwise string) string {
	if !at.IsValid() {
		return otherwise
	}
	return at.String()
}
