package ncclsocketstall

import (
	"cmp"
	"fmt"
)

// path finds the worst of the paths on which packets do not get through: the one
// whose far end most hosts cannot reach, then the first. Sockets of the store and
// of bootstrap that never connected are another pattern's (nccl_bootstrap_timeout).
func (g *graph) path() *conclusion {
	reached := map[string]map[string]bool{} // far address → hosts that cannot reach it
	var broken []*stall
	for _, s := range g.active {
		if s.Cause == networkDown || s.Cause == connecting && !s.joining() {
			broken = append(broken, s)
			at := address(s.Peer)
			if reached[at] == nil {
				reached[at] = map[string]bool{}
			}
			reached[at][g.j.Procs[s.Proc].Host] = true
		}
	}
	var worst *stall
	for _, s := range broken {
		if worst == nil || cmp.Or(
			cmp.Compare(len(reached[address(worst.Peer)]), len(reached[address(s.Peer)])),
			cmp.Compare(s.Onset/again, worst.Onset/again), cmp.Compare(s.Proc, worst.Proc), cmp.Compare(s.Peer, worst.Peer), cmp.Compare(s.Local, worst.Local),
		) < 0 {
			worst = s
		}
	}
	if worst == nil {
		return nil
	}
	return g.brokenPath(worst, len(reached[address(worst.Peer)]))
}

func (g *graph) brokenPath(s *stall, hosts int) *conclusion {
	c := &conclusion{Held: heldPath, Culprit: s.Proc, Stall: s, Certain: true}
	p := g.j.Procs[s.Proc]
	from, to := p.who()+" at "+cmp.Or(s.Local, "an unknown address"), g.nameOfPeer(s)
	if g.peer(s) != "" || s.PeerRank >= 0 {
		to += " at " + cmp.Or(s.Peer, "an unknown address")
	}
	switch {
	case s.Cause == connecting && s.Error == "ECONNREFUSED":
		c.Held, c.Certain = heldRefused, false
		c.Shows = fmt.Sprintf("%s refuses connections of %s: nobody listens there", to, from)
		c.Missing = "any record of a process that listens at " + s.Peer
		return c
	case s.Cause == connecting:
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
func (g *graph) direction(s *stall, hosts int) string {
	far := g.peer(s)
	if far == "" && hosts > 1 {
		return fmt.Sprintf("%d hosts cannot reach that address, and no record came from it: the machine is down, or cut off", hosts)
	}
	if far == "" {
		return "no record came from the other end: its machine is down, cut off, or runs no agent"
	}
	back, waits := false, false
	for _, e := range g.out[far] {
		if e.to != s.Proc {
			continue
		}
		back = back || e.stall.Cause == networkDown || e.stall.Cause == connecting
		waits = waits || e.stall.Cause == waiting
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
