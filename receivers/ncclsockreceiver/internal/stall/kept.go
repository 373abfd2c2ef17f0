package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclsock"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// startsApart is how far the start of a process must lie after a moment to be surely after it: starts are cut to a tick.
const startsApart = time.Second

// Kept says that a process failed and had lost no connection to its job: each stood until the process closed it.
type Kept struct {
	Process identity.Process
	Time    time.Time // of its end
}

// Kept are those since this was asked last.
func (t *Tracker) Kept() (all []Kept) {
	all, t.partings.kept = t.partings.kept, nil
	return all
}

// Missed notes that nobody looked for a time: what was lost then is not known.
func (t *Tracker) Missed() { t.missed = true }

// binds reports whether the rank may die where the far end is gone. Processes of one rank are connected, too.
func (s *socket) binds() bool { return s.kind != socketstall.Other && s.far != s.rank.now.Rank }

// ending is how a connection ended.
type ending uint8

const (
	unheard ending = iota
	closed         // by its process, while it stood
	broken         // any other way
)

// ends notes that the connection ended.
func (s *socket) ends(how ending, at time.Time) {
	if s.over = how; how == broken && s.binds() {
		s.rank.brokenAt = at
	}
}

// vanishes notes that the connection is gone and that nobody has heard how.
func (s *socket) vanishes(c *clock) {
	if s.now.State == established && s.over == unheard {
		s.ends(broken, c.at)
	}
}

// passes notes that another process has the connection now: one that the process had started, where it has ended.
func (s *socket) passes(next *ncclsock.Socket, c *clock) {
	switch of := s.rank; {
	case !s.binds():
	case of.round == c.round || next.State != established:
		of.brokenAt = c.at
	default:
		of.passedAt = c.at
	}
}

// vouch tells of a process that has ended if it kept its connections, as soon as that is known.
func (t *Tracker) vouch(r *rank) {
	if !r.endedAt.IsZero() && !r.kept && t.keeps(r) {
		r.kept = true
		t.partings.kept = append(t.partings.kept, Kept{r.now.Process, r.endedAt})
	}
}

// keeps reports whether a process that has ended lost no connection before. The kernel tells of all that happens to a socket in
// order: who hears that the process closed one has heard what the far end did before. A connection that it did not close may have
// been lost, but where a process that it had started holds it still.
func (t *Tracker) keeps(r *rank) bool {
	lately := func(at time.Time) bool { return !at.IsZero() && r.endedAt.Sub(at) <= follows }
	switch {
	case !r.joins() || r.job == nil || r.halfClosed || lately(r.brokenAt):
		return false
	case r.now.StartTime.Sub(t.missedAt) <= startsApart && lately(t.missedAt):
		return false
	case !r.passedAt.IsZero() && r.passedAt.Before(r.endedAt):
		return false
	}
	for _, o := range r.job.ranks { // in a ring its neighbours may have lost one that left, and it may know by other ways
		if p := &o.parting; o.now.Rank != r.now.Rank && p.first && !p.over && lately(p.at) && p.at.Before(r.endedAt) {
			return false
		}
	}
	connected := !r.passedAt.IsZero()
	for _, s := range r.sockets {
		switch {
		case !s.binds():
		case s.now.State == ncclsock.CloseWait, s.now.State == established && s.over != closed:
			return false
		case s.now.State == established:
			connected = connected || s.joins() && s.round == r.round
		}
	}
	return connected
}
