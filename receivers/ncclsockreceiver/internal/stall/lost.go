package stall

import (
	"slices"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

const (
	// maxLosses bounds the connections that a rank has lost and that are remembered. The first of them says most.
	maxLosses = 16
	// maxChain bounds the ranks through which a loss is followed. More than all of a node closed because of others.
	maxChain = 64
	// maxBygone bounds the processes that are gone and whose losses are remembered.
	maxBygone = 4096
)

// Lost says that a process failed, and had lost a connection to its job before.
type Lost struct {
	Process identity.Process
	Time    time.Time // of its end
	At      time.Time // when it lost the first
	How     socketstall.LostHow
	Peer    *identity.Process // at the other end; nil for one that is not on this node
}

// Cut says that a process closed a connection before any of its own was lost, and that another one of its job lost that, or
// one that was closed because of it, and failed.
type Cut struct {
	Process identity.Process
	Time    time.Time // when it closed the first of these
	End     socketstall.CutEnd
	Victim  identity.Process
}

// loss is a connection that the far end closed, or that failed.
type loss struct {
	s   *socket
	at  time.Time
	how socketstall.LostHow
}

// bygone is a process that is gone. What it had lost shows whether it closed its connections because of that. It also leads to others
// that are gone, and these to more: it is forgotten after a while.
type bygone struct {
	of      *rank
	at      time.Duration // when it was missed
	element *fairlru.Element[*bygone]
}

// outlive remembers what a process that is gone had lost. Domains and their jobs share the room.
func (ps *partings) outlive(r *rank, now time.Duration) {
	one := &bygone{of: r, at: now}
	one.element = ps.bygone.Add(one, fairlru.Some, r.now.Domain, r.now.JobID)
	if ps.bygone.Len() > maxBygone {
		victim, _ := ps.bygone.Victim()
		ps.forgive(victim.Value)
	}
	for ps.bygone.Len() > 0 && now-ps.bygone.Oldest().at > follows {
		ps.forgive(ps.bygone.Oldest())
	}
}

func (ps *partings) forgive(one *bygone) {
	ps.bygone.Remove(one.element)
	one.of.losses, one.of.forgiven = nil, true
}

// fate is how a process ended, as far as that was heard.
type fate struct {
	known, well bool
	asked       time.Time // when another process asked it to end, or killed it
}

func fateOf(e *identity.Exit) fate {
	f := fate{known: true, well: !e.Failed()}
	if by := &e.Signalled; by.Number != 0 && by.Sender.Relation != identity.RelationItself && by.Sender.Relation != identity.RelationKernel {
		f.asked = by.Time
	}
	return f
}

// reacts reports whether a process ended as one may that has lost another: by a status, or an abort of its own.
func reacts(e *identity.Exit) bool {
	by := &e.Signalled
	switch {
	case e.Signal == int(syscall.SIGABRT):
		return by.Number == 0 || by.Sender.Relation == identity.RelationItself
	default:
		return e.Signal == 0 && e.Code != 0 && by.Number == 0
	}
}

// Lost are those since this was asked last, and who had closed their connections first.
func (t *Tracker) Lost() (lost []Lost, cut []Cut) {
	if t.partings.unblamed {
		t.partings.unblamed = false
		t.blame()
	}
	lost, cut, t.partings.lost, t.partings.cut = t.partings.lost, t.partings.cut, nil, nil
	return lost, cut
}

// on is a moment on the clock of the tracker.
func (t *Tracker) on(at time.Time) time.Duration { return t.now - t.at.Sub(at) }

// lasts reports whether something may be why a process closes its connections, or fails, at a moment: it was not long before, and
// the process has not moved data of its job long after it.
func (t *Tracker) lasts(r *rank, at, until time.Time) bool {
	return !at.IsZero() && !at.After(until) && until.Sub(at) <= follows && r.moved <= t.on(at)+goesOn
}

// free reports whether no loss is why the rank closes a connection.
func (t *Tracker) free(r *rank, at time.Time) bool {
	unseen := r.now.StartTime.Sub(t.missedAt) <= startsApart && at.Sub(t.missedAt) <= follows
	return !r.halfClosed && !unseen && !t.lasts(r, r.brokenAt, at)
}

// gives notes that the process closed a connection that stood.
func (t *Tracker) gives(s *socket, at time.Time) {
	s.overAt, s.free = at, t.free(s.rank, at)
	if s.free && s.joins() && s.used() {
		s.rank.gaveAt = at
	}
}

// loses notes that the rank lost a connection.
func (t *Tracker) loses(s *socket, c *ncclsock.Change) {
	r, how := s.rank, socketstall.LostFailed
	if r.forgiven {
		return
	}
	switch {
	case c.New == ncclsock.CloseWait:
		how = socketstall.LostClosed
	case c.Error == int32(syscall.ECONNRESET):
		how = socketstall.LostReset
	}
	r.losses = slices.DeleteFunc(r.losses, func(l loss) bool { return !t.lasts(r, l.at, c.Time) })
	if len(r.losses) < maxLosses {
		r.losses = append(r.losses, loss{s, c.Time, how})
	}
}

// fails notes the end of a process that may have died of a loss.
func (t *Tracker) fails(r *rank, e *identity.Exit) {
	first := slices.IndexFunc(r.losses, func(l loss) bool { return t.lasts(r, l.at, e.Time) })
	if !reacts(e) || first < 0 || r.victim || t.lasts(r, r.gaveAt, r.losses[first].at) {
		return
	}
	l := &r.losses[first]
	one := Lost{Process: r.now.Process, Time: e.Time, At: l.at, How: l.how}
	if far := l.s.other; far != nil {
		one.Peer = &far.rank.now.Process
	}
	r.victim = true
	if one.Peer != nil || r.job != nil && r.job.beyond() { // else a stranger may have been at the other end
		t.partings.lost = append(t.partings.lost, one)
	}
}

// blame looks for those who closed their connections first, of which others failed. How a process ended, or that it lives on, may be known later.
func (t *Tracker) blame() {
	for _, r := range t.ranks {
		t.trace(r)
	}
	for _, gone := range t.partings.of {
		t.trace(gone.Value.of)
	}
}

// trace tells who closed a connection first of those that were closed before a process failed.
func (t *Tracker) trace(r *rank) {
	if !r.victim || r.traced {
		return
	}
	s := t.origin(r, r.endedAt, map[*rank]bool{})
	if s == nil {
		return
	}
	end, known := t.endOf(s, r)
	if !known {
		return
	}
	r.traced = true
	if end != "" {
		t.partings.cut = append(t.partings.cut, Cut{Process: s.rank.now.Process, Time: s.overAt, End: end, Victim: r.now.Process})
	}
}

// origin is the first connection that was closed without a loss, of those by which the rank came to lose its own; nil
// for none. Who closed one because of a loss leads to that one.
func (t *Tracker) origin(r *rank, before time.Time, seen map[*rank]bool) (first *socket) {
	if seen[r] || len(seen) >= maxChain {
		return nil
	}
	seen[r] = true
	for i := range r.losses {
		l := &r.losses[i]
		s := l.s.other
		if !t.lasts(r, l.at, before) || s == nil || s.over != closed || s.overAt.After(l.at) {
			continue
		}
		if !s.free {
			s = t.origin(s.rank, s.overAt, seen)
		}
		if s != nil && (first == nil || s.overAt.Before(first.overAt)) {
			first = s
		}
	}
	return first
}

// endOf says what became of the process that closed s first: "" for what makes it none that left. It is not known
// while the process may be about to end. Of a process that lives and has no connections left Left tells.
func (t *Tracker) endOf(s *socket, victim *rank) (end socketstall.CutEnd, known bool) {
	r, f := s.rank, &s.rank.fate
	lostLater := slices.ContainsFunc(r.losses, func(l loss) bool { return l.at.After(s.overAt) })
	switch {
	case r.parting.told:
		return "", true
	case !f.known && (t.ranks[r.now.PID] != r || r.round != t.round || r.now.State == socketstall.Zombie || t.at.Sub(s.overAt) < livesOn):
		return "", false
	case !f.known && r.open == 0:
		return "", false
	case !f.known:
		return socketstall.CutLives, true
	case !f.asked.IsZero() && f.asked.Sub(s.overAt) < sooner: // it closed it because of that
		return "", true
	case !f.asked.IsZero():
		return socketstall.CutLives, true
	case f.well:
		return socketstall.CutEnded, true
	case lostLater && r.endedAt.After(victim.endedAt): // it died of what followed
		return socketstall.CutLives, true
	}
	return "", true
}
