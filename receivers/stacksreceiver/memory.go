package stacksreceiver

import (
	"cmp"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// memory is what is known of a process, as it is kept for the next start. In which places it stands often,
// and which of these are collectives, is soon known again, and nothing is told late or wrongly until then. Where it was told to
// stand, and why, has to be known: what was told of it stands until it is elsewhere, or others wait for it no more.
type memory struct {
	Rest      activity.Memory `json:"rest"`
	Began     int64           `json:"began_ms"` // the first look
	AsleepFor []activity.Kept `json:"asleep,omitempty"`
	InCalls   []activity.Kept `json:"in_calls,omitempty"`
	Stands    uint64          `json:"stands,omitempty"` // calls of its place, as it was told; 0: it does not, or nobody knows where
	Why       reason          `json:"why,omitempty"`    // it was told
	Names     bool            `json:"names,omitempty"`  // it waits there for a name server, and may try again
}

// stood is where a process was told to stand before this receiver began, as far as it has been nowhere else since.
type stood struct {
	calls uint64 // of its place; 0: nobody knows, or it is known to have left
	why   reason
	names bool
	left  time.Time // a look-up of a name, which it may try again; zero while it is there
}

// over reports whether nothing that was told stands, as far as is known.
func (s *stood) over() bool { return s.calls == 0 && s.why != awaited }

// goes takes where the thread is now that it came there, or worked on there. first says that it is seen for the first time.
func (s *stood) goes(now time.Time, calls uint64, first bool) {
	switch there := calls == s.calls; {
	case s.why == awaited: // it goes to and fro: its end lookAtAwaited tells
	case s.names && there:
		s.left = time.Time{}
	case s.names:
		s.left = cmp.Or(s.left, now)
	case !first || !there:
		*s = stood{}
	}
}

// ages ends it where a look-up of a name is not tried again.
func (s *stood) ages(now time.Time) {
	if !s.left.IsZero() && now.Sub(s.left) > triedAgain {
		*s = stood{}
	}
}

// memory is what the watch knows of a process; false of one that it does not follow.
func (w *watch) memory(p *identity.Process) (memory, bool) {
	f := w.follows[processOf(p)]
	if f == nil || f.began.IsZero() {
		return memory{}, false
	}
	stands := f.standsIn()
	return memory{f.rest.Memory(), f.began.UnixMilli(), f.asleepFor.kept(), f.inCalls.kept(), stands.calls, stands.why, stands.names}, true
}

// standsIn is where it stands, as it was told by this start or the one before.
func (f *follower) standsIn() stood {
	if f.told != nil {
		return stood{calls: f.told.place.Calls, why: f.told.why, names: f.told.names()}
	}
	return f.stood
}

// After is the memory after an absence.
func (m memory) After(absence time.Duration) memory {
	m.Rest = m.Rest.After(absence)
	m.AsleepFor, m.InCalls = activity.Later(m.AsleepFor, absence), activity.Later(m.InCalls, absence)
	switch {
	case activity.Outdated(absence):
		m.Began = 0
	case m.Began > 0:
		m.Began += absence.Milliseconds()
	}
	return m
}

// recall begins with what was known before.
func (f *follower) recall(m *memory, now time.Time) {
	if began := time.UnixMilli(m.Began); m.Began > 0 && !began.After(now) {
		f.began = began
	}
	f.rest.Recall(&m.Rest, now)
	f.asleepFor.recall(m.AsleepFor, now)
	f.inCalls.recall(m.InCalls, now)
	f.stood = stood{calls: m.Stands, why: m.Why, names: m.Names}
}

// kept are the stays, the oldest first.
func (s *stays) kept() (all []activity.Kept) {
	for i := max(0, s.next-len(s.last)); i < s.next; i++ {
		one := &s.last[i%len(s.last)]
		all = append(all, activity.Keep(one.end, one.long, ""))
	}
	return all
}

func (s *stays) recall(all []activity.Kept, now time.Time) {
	for _, one := range all[max(0, len(all)-len(s.last)):] {
		if end, long, is := one.Pause(now); is {
			s.note(end, long)
		}
	}
}
