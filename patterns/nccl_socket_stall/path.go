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
// An end whose rank had died before answers nobody: the path is not at fault.
func (g *graph) path(fs *facts) *conclusion {
	reached := map[netip.Addr]map[string]bool{} // far address → hosts that cannot reach it
	var broken []*socketstall.Stall
	var dead *socketstall.Stall
	for _, s := range g.active {
		switch {
		case s.Cause != socketstall.Network && (s.Cause != socketstall.Connecting || s.Kind.Joining()):
		case g.ends(s, fs):
			if dead == nil || before(s, dead) {
				dead = s
			}
		default:
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
	switch {
	case worst == nil && dead == nil:
		return nil
	case worst == nil:
		return g.unseen(dead.Process, &edge{stall: dead}, fs)
	}
	return g.brokenPath(worst, len(reached[worst.Peer.Addr()]))
}

// ends reports whether the other end of s is of a rank that had died when s was first seen: a
// rank that dies later may die of the path.
func (g *graph) ends(s *socketstall.Stall, fs *facts) bool {
	if g.peer(s) != "" {
		return false
	}
	at, absent := g.missingRank(s, fs), g.absent(fs)
	death := absent.death(at)
	return death != nil && (at >= 0 || absent.all) && death.Onset <= s.First
}

func (g *graph) brokenPath(s *socketstall.Stall, hosts int) *conclusion {
	back := g.mirrored(s)
	forth, returns := g.passes(s, back)
	if turned := g.turned(s, back); forth == yes && returns == no && turned != s {
		s, forth, returns = turned, no, yes // acknowledgements are lost: the path is the other one
	}
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
		c.Shows = fmt.Sprintf("what %s sends to %s does not arrive, or its acknowledgement does not", from, to)
	}
	switch {
	case returns == yes:
		c.Way, c.Shows = "while they do the other way", c.Shows+"; packets in the other direction arrive"
	case forth == no && returns == no:
		c.Way, c.Shows = "nor the other way", c.Shows+"; packets in the other direction do not arrive either"
	case forth == yes:
		c.Way = "since acknowledgements are lost on the way back"
		c.Shows += "; it arrives, its acknowledgement is lost on the way back"
	case forth == no:
		c.Shows += "; none of it has arrived"
	default:
		c.Shows += "; " + g.farEnd(s, hosts)
	}
	return c
}

// answer says whether packets pass.
type answer int

const (
	unknown answer = iota
	yes
	no
)

// passes compares what each end has sent with what the other has received. Of bytes that
// were sent and not acknowledged three things can be true: none has arrived, so that they
// are lost on their way; all have, so that their acknowledgements are lost on the way
// back; some have, so that nothing passes since.
func (g *graph) passes(s, back *socketstall.Stall) (forth, returns answer) {
	take := func(of *socketstall.Stall, there, home *answer) {
		if of == nil || of.Out < 0 || of.Unacked <= 0 {
			return
		}
		switch got := g.arrived(of); {
		case got < 0:
		case got <= of.Out-of.Unacked:
			*there = no
		case got >= of.Out:
			*home = no
			if *there == unknown {
				*there = yes
			}
		default:
			*there, *home = no, no
		}
	}
	take(s, &forth, &returns)
	take(back, &returns, &forth)
	return forth, returns
}

// arrived is how many bytes of a stall's socket the other end has received, below 0 when
// not known.
func (g *graph) arrived(s *socketstall.Stall) int64 {
	if s.PeerIn >= 0 {
		return s.PeerIn
	}
	if back := g.mirrored(s); back != nil {
		return back.In
	}
	return socketstall.Unknown
}

// mirrored is the stall of the same connection as the other end tells it, nil for none:
// the one that tells most.
func (g *graph) mirrored(s *socketstall.Stall) *socketstall.Stall {
	far := g.peer(s)
	if far == "" || !s.Local.IsValid() || !s.Peer.IsValid() {
		return nil
	}
	var best *socketstall.Stall
	for _, o := range g.procs[far].Stalls {
		if o.Local == s.Peer && o.Peer == s.Local && o.Ended == 0 && g.j.repeated(o) && (best == nil || o.Unacked > best.Unacked || o.Unacked == best.Unacked && before(o, best)) {
			best = o
		}
	}
	return best
}

// turned is the stall as the other end would tell it.
func (g *graph) turned(s, back *socketstall.Stall) *socketstall.Stall {
	if back != nil {
		return back
	}
	far := g.peer(s)
	if far == "" {
		return s
	}
	t := *s
	t.Process, t.Local, t.Peer, t.PeerRank = far, s.Peer, s.Local, socketstall.Unknown
	if g.procs[far].Host == g.procs[s.Process].Host {
		t.PeerRank = g.procs[s.Process].Rank
	}
	return &t
}

// farEnd says what is known of the other end where bytes do not tell the direction.
func (g *graph) farEnd(s *socketstall.Stall, hosts int) string {
	switch {
	case g.peer(s) != "" || s.PeerRank >= 0:
		return "in which direction packets are lost is not known"
	case hosts > 1:
		return fmt.Sprintf("%d hosts cannot reach that address, and no record came from it: the machine is down, or cut off", hosts)
	}
	return "no record came from the other end: its machine is down, cut off, runs no agent, or what it sends comes too late"
}

// address writes an address and port, or what stands for one that is not known.
func address(at netip.AddrPort, otherwise string) string {
	if !at.IsValid() {
		return otherwise
	}
	return at.String()
}
