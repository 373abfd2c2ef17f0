package stacksreceiver

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
)

// reason is why a stack is taken.
type reason string

const (
	asleep    reason = "asleep"
	sameCall  reason = "same_call"
	spinning  reason = "spinning"
	peerEnded reason = "peer_ended"
)

// stillLooks is for how many looks a thread must not have run, after the one that saw it first.
const stillLooks = 2

// What a thread did before it may do again, for twice as long, before it is told again: at most
// for these times, so that a standstill is told in a place where it is usual, too.
const (
	longestHabit = 30 * time.Second // asleep
	longestCall  = 10 * time.Minute // in one call
	maxHabits    = 16
)

// Stacks that one process may make: a burst, then one each pause.
const (
	takesAtOnce = 10
	takePause   = 30 * time.Second
)

// Pauses after a stack that could not be read.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// follower follows the main thread of one process.
type follower struct {
	identity.Process
	python bool

	seen     bool
	status   procfs.ThreadStatus // at the last look
	looks    int                 // since then it has not run
	since    time.Time           // of the first of these looks
	place    pystack.Place       // in Python, where that was read last
	inCall   time.Time           // it is in the same call since, as far as was seen
	told     *told               // where it stands still; nil while it moves
	peer     bool                // a process of its job has ended
	habits   map[uint64]time.Duration
	spin     spin
	takes    bucket
	retry    time.Duration
	notUntil time.Time // after a failure

	sent map[uint64]struct{} // hashes whose frames have left
}

// told is a standstill of which a record was made.
type told struct {
	place    pystack.Place
	switches uint64
	since    time.Time
	hash     uint64
}

func newFollower(p identity.Process) *follower {
	return &follower{Process: p, habits: map[uint64]time.Duration{}, takes: bucket{size: takesAtOnce, each: takePause}, sent: map[uint64]struct{}{}}
}

// outcome is what a look says to do.
type outcome struct {
	take  reason // "" for none
	moved *told  // it stood there, and does not any more
}

// look takes what the kernel says of the thread now. where reads its place in Python, which is
// not needed of most threads that sleep.
func (f *follower) look(now time.Time, status procfs.ThreadStatus, config *Config, where func() (pystack.Place, error)) outcome {
	same := f.seen && status.Asleep() && f.status.Asleep() && status.Switches == f.status.Switches
	f.seen, f.status = true, status
	if same {
		f.looks++
	} else {
		f.looks, f.since = 0, now
	}
	switch {
	case f.looks >= stillLooks:
		return f.still(now, where)
	case f.looks > 0 && !f.peer:
		return outcome{} // the next look tells
	}
	return f.moves(now, config, where)
}

// still decides about a thread that sleeps and has not run for some looks.
func (f *follower) still(now time.Time, where func() (pystack.Place, error)) outcome {
	if f.told != nil && f.told.switches == f.status.Switches {
		return outcome{}
	}
	place := f.read(where)
	if f.told != nil && place == f.told.place && place != nowhere {
		f.told.switches = f.status.Switches // it woke, and sleeps in the same place again
		return outcome{}
	}
	patience := min(2*f.habits[place.Calls], longestHabit)
	if f.status.State == 'D' || f.peer {
		patience = 0
	}
	if now.Sub(f.since) < patience {
		return outcome{}
	}
	return outcome{take: asleep}
}

// moves decides about a thread that runs, or that has just fallen asleep.
func (f *follower) moves(now time.Time, config *Config, where func() (pystack.Place, error)) outcome {
	before := f.place
	place := f.read(where)
	if f.inCall.IsZero() || place.Calls != before.Calls || place == nowhere {
		f.inCall = now
	}
	var o outcome
	if f.told != nil && (place.Calls != f.told.place.Calls || place == nowhere) {
		o.moved = f.leaves(now)
	}
	switch patience := max(config.Patience, min(2*f.habits[place.Calls], longestCall)); {
	case f.told != nil:
	case f.peer:
		o.take = peerEnded
	case now.Sub(f.inCall) >= patience:
		f.since = f.inCall
		o.take = sameCall
	}
	return o
}

// nowhere is the place of a thread that is not in Python, or whose place was not read.
var nowhere pystack.Place

// read is the thread's place in Python.
func (f *follower) read(where func() (pystack.Place, error)) pystack.Place {
	f.place = nowhere
	if f.python {
		if place, err := where(); err == nil {
			f.place = place
		}
	}
	return f.place
}

// leaves ends a standstill, and remembers how long it was.
func (f *follower) leaves(now time.Time) *told {
	was := f.told
	f.told = nil
	if len(f.habits) >= maxHabits {
		clear(f.habits)
	}
	f.habits[was.place.Calls] = max(f.habits[was.place.Calls], now.Sub(was.since))
	return was
}

// failed notes that a stack was not read.
func (f *follower) failed(now time.Time) {
	f.retry = min(max(2*f.retry, firstRetry), longestRetry)
	f.notUntil = now.Add(f.retry)
}

// stands notes that a stack was read.
func (f *follower) stands(hash uint64) {
	f.retry, f.peer = 0, false
	f.told = &told{place: f.place, switches: f.status.Switches, since: f.since, hash: hash}
}

// maxSent is how many hashes of a process are remembered.
const maxSent = 64

// first reports whether the frames of that hash are to leave, and remembers it.
func (f *follower) first(hash uint64) bool {
	if _, sent := f.sent[hash]; sent {
		return false
	}
	if len(f.sent) >= maxSent {
		clear(f.sent)
	}
	f.sent[hash] = struct{}{}
	return true
}
