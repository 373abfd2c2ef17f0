package stacksreceiver

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/waitclass"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// reason is why a stack is taken.
type reason string

const (
	asleep    reason = "asleep"
	sameCall  reason = "same_call"
	spinning  reason = "spinning"
	awaited   reason = "awaited"
	peerEnded reason = "peer_ended"
)

// enough is how many looks must find a rank where ranks are in each step until it is
// known to be at its steps: there is one a second.
const enough = 5

// stillLooks is for how many looks a thread must not have run, after the one that saw it first.
const stillLooks = 2

// What a thread did several times it may do again, for twice as long, before it is told again:
// at most for these times, so that a standstill is told in a place where it is usual, too.
const (
	longestHabit = 30 * time.Second        // asleep
	longestWait  = 2500 * time.Millisecond // asleep where it waits for others: that is no fault of its own, and they are told at the third look
	longestCall  = 10 * time.Minute        // in one call
	maxHabits    = 16                      // places,
	maxTimes     = 8                       // and standstills in each
)

// A thread that is woken in its call, and waits on, runs for microseconds and sleeps again: it
// polls. One that ran for longer between two looks has done something else, and has come back: a
// step of training. So much on the CPU, and for each time that it slept. So has one that slept
// through several looks, and then twice between two.
const (
	stepTime  = time.Millisecond
	stepSleep = 150 * time.Microsecond
)

// triedAgain is how soon a look-up of a name that failed is tried again, as PyTorch does after a second: until then the rank
// stands on.
const triedAgain = 5 * time.Second

// Places whose wait class is known: a read of the frames for each that is new.
const (
	maxPlaces  = 64
	placePause = 10 * time.Second
)

// Records of what a rank does that stands: when that changes, but not without end.
const (
	doingsAtOnce = 6
	doingPause   = 10 * time.Second
)

// Stacks that one process may make: a burst, then one each pause. Some of the burst are kept for
// what is unusual, else the waits of a healthy rank, step after step, would use up the stack that
// tells of its hang.
const (
	takesAtOnce = 10
	takesKept   = 4
	takePause   = 30 * time.Second
)

// A thread is in one call for long, usually, where that came three times lately: then it is told
// after twice as long. Of a rank whose calls are not known yet it may be in each step, so it is told
// later: still within the minute in which a loop without end is to be named.
const (
	recentCalls = 5 * time.Minute
	youngCalls  = 2.5 // times the patience
)

// A main thread that waits for another is looked through after it has done so for that long. That there is one
// such thread is asked a few times, then once each pause.
const (
	turnAfter     = 3 * time.Second
	turnsAtOnce   = 4
	turnsEachTime = 30 * time.Second
)

// Pauses after a stack that could not be read.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// follower follows the main thread of one process, or the thread that does its work.
type follower struct {
	identity.Process
	python bool

	seen      bool
	status    procfs.ThreadStatus // at the last look
	looks     int                 // since then it has not run
	since     time.Time           // of the first of these looks
	place     pystack.Place       // in Python, where that was read last
	inCall    time.Time           // it is in the same call since, as far as was seen
	ran       time.Duration       // on its CPU, when it was asked last; 0: not known
	sleeps    uint64              // at that look
	told      *told               // where it stands still; nil while it moves
	peer      bool                // a process of its job has ended
	habits    map[uint64][]time.Duration
	asleepFor stays     // its last sleeps of several looks, wherever
	waitedFor stays     // of these where it waited as in each step
	inCalls   stays     // its last long times in one call, whichever
	began     time.Time // of the first look
	spin      spin
	tries     *tries // while others of its job wait for it
	triesLeft bucket
	takes     bucket
	rest      activity.Rest // since its main thread ran
	classes   map[uint64]waitclass.Class
	places    bucket // that may be asked for their class
	doings    bucket
	turnings  bucket // times that it is asked whether another thread does the work
	retry     time.Duration
	notUntil  time.Time // after a failure

	older bool // than this receiver: another may have told where it stood
	stood stood
	texts texts // of its job
}

// told is a standstill of which a record was made.
type told struct {
	why      reason
	place    pystack.Place
	switches uint64
	since    time.Time
	hash     uint64
	frames   []pystack.Frame     // that its looks share, where it was awaited
	class    waitclass.Class     // what it waits for, by its whole stack
	left     time.Time           // the look-up, which it may try again; zero while it is there
	silence  socketstall.Silence // as it was told
	halted   bool
	at       time.Time // of the newest record
	paid     bool      // for the record of its end
	where    string    // its line, which no record has said; "" where one has, or none may
}

// names reports whether it waits for a name server.
func (t *told) names() bool { return t.class == waitclass.NameServer }

func newFollower(p identity.Process) *follower {
	return &follower{
		Process: p, habits: map[uint64][]time.Duration{}, texts: texts{}, classes: map[uint64]waitclass.Class{},
		triesLeft: bucket{size: triesAtOnce, each: triesPause}, takes: bucket{size: takesAtOnce, each: takePause}, places: bucket{size: maxPlaces, each: placePause}, doings: bucket{size: doingsAtOnce, each: doingPause}, turnings: bucket{size: turnsAtOnce, each: turnsEachTime},
		rest: activity.Rest{Enough: enough},
	}
}

// turn begins to follow another thread, which does the work of the process. What was told of it stays, until
// that thread stands elsewhere or goes on.
func (f *follower) turn() {
	f.seen, f.looks, f.place, f.inCall, f.ran, f.sleeps = false, 0, nowhere, time.Time{}, 0, 0
	f.spin, f.asleepFor, f.waitedFor, f.inCalls = spin{}, stays{}, stays{}, stays{}
}

// outcome is what a look says to do.
type outcome struct {
	take  reason // "" for none
	moved *told  // it stood there, and does not any more
}

// inquiry is what a follower asks of its thread where it needs to: where it is in Python, and how long
// it has run.
type inquiry struct {
	where func() (pystack.Place, error)
	onCPU func() (time.Duration, error)
}

// look takes what the kernel says of the thread now.
func (f *follower) look(now time.Time, status procfs.ThreadStatus, config *Config, ask inquiry) outcome {
	var gaveUp *told
	if f.pausesToTry() && now.Sub(f.told.left) > triedAgain {
		gaveUp = f.leaves(now)
	}
	o := f.judge(now, status, config, ask)
	if gaveUp != nil {
		o.take, o.moved = "", gaveUp // where it stands now the next look tells: what was told is over then
	}
	return o
}

// pausesToTry reports whether the thread has left a look-up of a name that was told, and may try it again.
func (f *follower) pausesToTry() bool { return f.told != nil && !f.told.left.IsZero() }

// judge decides by what the kernel says. Of most threads that sleep nothing else is needed.
func (f *follower) judge(now time.Time, status procfs.ThreadStatus, config *Config, ask inquiry) outcome {
	same := f.seen && status.Asleep() && f.status.Asleep() && status.Switches == f.status.Switches
	ran, rested, slept := f.seen && !same, f.atWork(), f.looks >= stillLooks
	if f.began.IsZero() {
		f.began = now
	}
	f.seen, f.status = true, status
	if slept && !same {
		f.asleepFor.note(now, now.Sub(f.since))
		if rested {
			f.waitedFor.note(now, now.Sub(f.since))
		}
	}
	if same {
		f.looks++
	} else {
		f.looks, f.since = 0, now
	}
	switch {
	case f.looks >= stillLooks:
		return f.still(now, ask.where)
	case f.looks > 0 && !f.peer:
		return outcome{} // the next look tells
	}
	o := f.moves(now, config, ask, slept)
	if !same && (f.told == nil || f.place != f.told.place || f.place == nowhere) { // else it woke for a moment, and waits on
		last := now
		if status.Asleep() { // it ran at some moment since the look before
			last = now.Add(-config.ScanInterval / 2)
		}
		if rested {
			f.rest.Last = last // a wait for others is no pause of its own
		}
		f.rest.Goes(last, last, rested || f.atWork()) // it was in a collective, and has left it: that is a step
	}
	if f.stood.ages(now); f.older && ran && f.stood.over() && (f.told == nil || o.moved != nil) {
		f.older = false
		if o.moved == nil {
			o.moved = &told{since: now}
		}
	}
	return o
}

// atWork reports whether the thread was found where ranks are in each step: in a collective, or
// waiting for its GPU or its threads of backward.
func (f *follower) atWork() bool { return steps(f.classes[f.place.Calls]) }

func steps(class waitclass.Class) bool {
	return class == waitclass.Collective || class == waitclass.GPU || class == waitclass.Backward
}

// learnPlace has the wait class of a place read that the thread has not been seen in before.
func (f *follower) learnPlace(now time.Time, class func() (waitclass.Class, error), where func() (pystack.Place, error)) {
	at := f.place
	if _, known := f.classes[at.Calls]; known || at == nowhere || !f.places.take(now, 1) {
		return
	}
	is, err := class()
	if err != nil {
		return
	}
	if after, err := where(); err != nil || after.Calls != at.Calls {
		return // it went on meanwhile
	}
	if len(f.classes) >= maxPlaces {
		clear(f.classes)
	}
	f.classes[at.Calls] = is
}

// changed reports whether what was told of a rank that stands is so no more, or was told long ago.
func (f *follower) changed(now time.Time) bool {
	if f.told == nil {
		return false
	}
	again := now.Sub(f.told.at) >= activity.Again
	if f.rest.Looks == 0 {
		return again && f.told.why == awaited // which does not rest
	}
	return again || f.rest.Silence != f.told.silence || f.rest.Now.State.Halted() != f.told.halted
}

// still decides about a thread that sleeps and has not run for some looks.
func (f *follower) still(now time.Time, where func() (pystack.Place, error)) outcome {
	if f.pausesToTry() {
		return outcome{}
	}
	told := f.told != nil && f.told.why == asleep // that it sleeps is news of one that was taken for another reason
	if told && f.told.switches == f.status.Switches {
		return outcome{}
	}
	place := f.read(where)
	if told && place == f.told.place && place != nowhere {
		f.told.switches = f.status.Switches // it woke, and sleeps in the same place again
		return outcome{}
	}
	patience := min(2*f.habit(place), longestHabit)
	if f.atWork() {
		patience = min(patience, longestWait)
	}
	if f.standsIn().why == awaited { // else it would be told anew each time that it sleeps between two tries
		var since time.Time
		if f.tries != nil {
			since = f.tries.since
		}
		patience = max(patience, min(2*f.asleepFor.reached(since, 1), longestHabit))
	}
	if f.status.State == 'D' || f.peer {
		patience = 0
	}
	if now.Sub(f.since) < patience {
		return outcome{}
	}
	return outcome{take: asleep}
}

// moves decides about a thread that runs, or that has just fallen asleep; slept says that it had
// slept through several looks, until the one before.
func (f *follower) moves(now time.Time, config *Config, ask inquiry, slept bool) outcome {
	before := f.place
	place := f.read(ask.where)
	worked := f.worked(ask.onCPU, slept)
	if first := f.inCall.IsZero(); first || place.Calls != before.Calls || place == nowhere || worked {
		f.stood.goes(now, place.Calls, first)
		if was := now.Sub(f.inCall); !f.inCall.IsZero() && 2*was >= config.Patience {
			f.inCalls.note(now, was)
		}
		f.inCall = now
	}
	var o outcome
	settled := f.told != nil && f.told.why != awaited // whose end lookAtAwaited tells
	switch there := settled && place.Calls == f.told.place.Calls && place != nowhere && (!worked || f.told.names()); {
	case !settled:
	case there:
		f.told.left = time.Time{}
	case f.told.names():
		f.told.left = cmp.Or(f.told.left, now)
	default:
		o.moved, settled = f.leaves(now), false
	}
	switch {
	case settled:
	case f.peer:
		o.take = peerEnded
	case now.Sub(f.inCall) >= f.callPatience(now, config):
		f.since = f.inCall
		o.take = sameCall
	}
	return o
}

// callPatience is how long the thread may be in the call in which it is. Where it waits for others
// nothing but that place counts: they are told soon. One that runs in backward computes itself.
func (f *follower) callPatience(now time.Time, config *Config) time.Duration {
	usual, patience := f.habit(f.place), config.Patience
	if waits := f.atWork() && f.classes[f.place.Calls] != waitclass.Backward; !waits && !f.spin.waits {
		usual = max(usual, f.inCalls.reached(now.Add(-recentCalls), activity.Repeats))
		if now.Sub(f.began) < recentCalls {
			patience = time.Duration(youngCalls * float64(patience))
		}
	}
	if f.stood.why == spinning && !f.spin.work { // as was told: that is found out again
		patience = max(patience, spinAgain)
	}
	return max(patience, min(2*usual, longestCall))
}

// unusual reports whether a thread that sleeps does so for as long as hardly ever lately.
func (f *follower) unusual(now time.Time) bool { return f.longerThan(&f.asleepFor, now) }

// longerThan reports whether it has slept for longer than all but one of these times.
func (f *follower) longerThan(times *stays, now time.Time) bool {
	return now.Sub(f.since) >= min(times.reached(time.Time{}, 2), longestHabit)
}

// waitsAsUsual reports whether the rank waits for others, for no longer than it does in its steps.
func (f *follower) waitsAsUsual(now time.Time) bool {
	return f.atWork() && f.status.State == 'S' && !f.longerThan(&f.waitedFor, now)
}

// worked reports whether the thread did more since it was asked last than to wake, and wait on: it
// slept and ran for long. One that never sleeps is in one call as far as is known.
func (f *follower) worked(onCPU func() (time.Duration, error), slept bool) bool {
	ran, sleeps := f.ran, f.sleeps
	now, err := onCPU()
	if err != nil { // a kernel without CONFIG_SCHED_INFO
		f.ran = 0
		return false
	}
	f.ran, f.sleeps = now, f.status.Sleeps
	if ran == 0 || f.sleeps <= sleeps {
		return false
	}
	times, took := f.sleeps-sleeps, now-ran
	return slept && times > 1 || took >= stepTime && uint64(took/stepSleep) >= times
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

// leaves ends a standstill, and remembers how long it was, unless it may have been told as a fault:
// the same hang is told as soon each time. Who waits for others is at no fault.
func (f *follower) leaves(now time.Time) *told {
	was := f.told
	f.told = nil
	if was.why == awaited || f.rest.Faulty() && !steps(f.classes[was.place.Calls]) {
		return was
	}
	if len(f.habits) >= maxHabits {
		clear(f.habits)
	}
	times := append(f.habits[was.place.Calls], now.Sub(was.since))
	slices.Sort(times)
	f.habits[was.place.Calls] = times[max(0, len(times)-maxTimes):]
	return was
}

// habit is for how long the thread has stood there several times.
func (f *follower) habit(place pystack.Place) time.Duration {
	times := f.habits[place.Calls]
	if len(times) < activity.Repeats {
		return 0
	}
	return times[len(times)-activity.Repeats]
}

// stays are the last times that a thread was somewhere for long.
type stays struct {
	last [16]stay
	next int
}

// stay is one of them.
type stay struct {
	end  time.Time
	long time.Duration
}

func (s *stays) note(end time.Time, long time.Duration) {
	s.last[s.next%len(s.last)] = stay{end, long}
	s.next++
}

// reached is the length that so many of them reached which ended after that time; 0: there were fewer.
func (s *stays) reached(after time.Time, times int) time.Duration {
	var lengths []time.Duration
	for _, one := range s.last[:min(s.next, len(s.last))] {
		if one.end.After(after) {
			lengths = append(lengths, one.long)
		}
	}
	if len(lengths) < times {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-times]
}

// failed notes that a stack was not read.
func (f *follower) failed(now time.Time) {
	f.retry = min(max(2*f.retry, firstRetry), longestRetry)
	f.notUntil = now.Add(f.retry)
}

// knows reports whether that was told already.
func (f *follower) knows(why reason, hash uint64) bool {
	return f.told != nil && f.told.hash == hash && f.told.why == why && why != spinning
}

// stands notes that a stack was read, of that place.
func (f *follower) stands(now time.Time, why reason, hash uint64, place pystack.Place) {
	was, known := f.told, f.knows(why, hash)
	f.retry, f.peer, f.stood = 0, false, stood{}
	f.told = &told{why: why, place: place, switches: f.status.Switches, since: f.since, hash: hash, silence: f.rest.Silence, halted: f.rest.Now.State.Halted(), at: now}
	if was == nil {
		return
	}
	f.told.paid = was.paid
	if known { // of what it does no record is made now
		f.told.silence, f.told.halted, f.told.at, f.told.where = was.silence, was.halted, was.at, was.where
	}
}
