package stall

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

const (
	// livesOn is how long a process has to live without connections until it has left its job. One
	// that ends by itself closes them some hundred milliseconds before.
	livesOn = 2 * time.Second
	// goesOn is how long after that the job still moves data if it does not need the process.
	goesOn = 10 * time.Second
	// ended is how long after a process is gone its end may be told: who else was asked to end is looked at first.
	ended = 5 * time.Second
	// sooner is how much earlier than it was asked to end a process has closed its connections, if it lived on. Clocks of
	// two probes may differ by less.
	sooner = 20 * time.Millisecond
	// maxParted bounds the processes that are gone and may have left before.
	maxParted = 1024
	// follows is for how long a process that lost a connection closes the others because of that.
	follows = 5 * time.Minute
)

// Left says that a process has closed its connections to its job, and lives on; or that this is over.
type Left struct {
	Process identity.Process
	Time    time.Time // when it closed the first; where that is over, of the snapshot that shows it
	First   bool      // no other end had closed one of them before, and none had failed
	Closed  int       // connections that it closed
	End     socketstall.LeftEnd
}

// parting is how a process closes its connections to its job.
type parting struct {
	at     time.Time     // when it closed the first; zero for none
	since  time.Duration // the same on the tracker's clock
	first  bool          // before any other end
	last   time.Time     // of the last that it closed
	closed int
	told   bool
	over   bool // that this is over was told
}

// parted is a process that is gone: its end, or that of its connections, may be heard later.
type parted struct {
	process identity.Process
	of      *rank // as it was
	until   time.Duration
}

// partings are those, until their ends are told. Domains and their jobs share the room.
type partings struct {
	of    map[identity.Born]*fairlru.Element[*parted]
	order fairlru.List[*parted]
	left  []Left // since the last snapshot
	kept  []Kept // since they were asked for
	lost  []Lost // the same
	cut   []Cut

	bygone   fairlru.List[*bygone]
	unblamed bool // more is known since who closed first was looked for
}

func (ps *partings) add(p *parted) {
	ps.forget(p.process.Born())
	ps.of[p.process.Born()] = ps.order.Add(p, fairlru.Some, p.process.Domain, p.process.JobID)
	if len(ps.of) > maxParted {
		e, _ := ps.order.Victim()
		ps.forget(e.Value.process.Born())
	}
}

func (ps *partings) forget(one identity.Born) {
	if e := ps.of[one]; e != nil {
		ps.order.Remove(e)
		delete(ps.of, one)
	}
}

// Ended takes the end of a process of a rank. Where others of its job die of what it left, its launcher ends it within a
// second. It had left if it had closed all its connections before somebody asked it to end; else it closed them because of that.
func (t *Tracker) Ended(e *identity.Exit) {
	born := e.Born()
	r := t.ranks[e.PID]
	if gone := t.partings.of[born]; gone != nil {
		r = gone.Value.of
	}
	if r == nil || r.now.Born() != born {
		return
	}
	t.partings.unblamed = true
	r.fate = fateOf(e)
	asked, p := r.fate.asked, &r.parting
	if !asked.IsZero() && p.first && !p.told && r.open == 0 && asked.Sub(p.last) >= sooner {
		p.told = true
		t.partings.left = append(t.partings.left, Left{Process: r.now.Process, Time: p.at, First: true, Closed: p.closed})
		return
	}
	if e.Failed() {
		r.endedAt = e.Time
		t.vouch(r)
		t.fails(r, e)
	}
}

// used reports whether data was seen to move on the socket. What is closed at once, as by a stranger at
// the door, is of no use.
func (s *socket) used() bool { return s.round > s.met && s.now.BytesSent+s.now.BytesReceived > used }

// joins reports whether the socket is of a kind by which ranks are in a group.
func (s *socket) joins() bool {
	return s.kind.Collective() || s.kind == socketstall.Bootstrap || s.kind == socketstall.Proxy
}

// closes takes the end of a connection. Only a call of the process itself leads to FIN_WAIT1 and LAST_ACK
// (tcp_close_state), or without an error to CLOSE: with unread data, or without lingering (__tcp_close). What the far
// end does leads to CLOSE_WAIT (tcp_fin), a reset, a timeout and an administrator to CLOSE with an error.
func (t *Tracker) closes(s *socket, c *ncclsock.Change) {
	if c.Old != ncclsock.Established && c.Old != ncclsock.CloseWait {
		return
	}
	r, p := s.rank, &s.rank.parting
	itself := c.New == ncclsock.FinWait1 || c.New == ncclsock.LastAck || c.New == ncclsock.Close && c.Error == 0
	if itself && c.Old == ncclsock.Established {
		t.gives(s, c.Time)
		s.ends(closed, c.Time)
	} else {
		s.ends(broken, c.Time)
	}
	if !s.joins() {
		return
	}
	if s.now.State == established && !s.shut && s.round == r.round { // as the last snapshot counted it
		s.shut = true
		r.open--
	}
	if itself && !p.at.IsZero() {
		p.last = c.Time
	}
	switch {
	case !s.used():
	case !itself:
		r.lostAt = c.Time
		t.loses(s, c)
	default:
		if p.at.IsZero() {
			*p = parting{at: c.Time, last: c.Time, since: t.now, first: !r.halfClosed && (r.lostAt.IsZero() || c.Time.Sub(r.lostAt) > follows)}
		}
		p.closed++
	}
}

// Left are the processes that have left their jobs as of this snapshot. Where that is over, the process is among them once more.
func (t *Tracker) Left() (all []Left) {
	all, t.partings.left = t.partings.left, nil
	for born, e := range t.partings.of {
		if t.now > e.Value.until {
			t.partings.forget(born)
		}
	}
	for _, r := range t.ranks {
		p := &r.parting
		if p.at.IsZero() {
			continue
		}
		one := Left{Process: r.now.Process, Time: p.at, First: p.first, Closed: p.closed}
		switch {
		case r.open > 0:
			if p.told && !p.over {
				one.Time, one.End = t.at, socketstall.LeftJoined
				all = append(all, one)
			}
			if p.told || t.now-p.since >= livesOn { // else it may be about to close the rest
				r.parting = parting{}
			}
		case p.told:
			if !p.over && r.job.moved > p.since+goesOn {
				p.over, one.Time, one.End = true, t.at, socketstall.LeftGoesOn
				all = append(all, one)
			}
		case r.now.State == socketstall.Zombie: // it ends
		case t.now-p.since >= livesOn:
			p.told = true
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Left) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
	return all
}
