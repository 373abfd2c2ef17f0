// Package timeline is event time: where a record belongs in it, what waits for a
// moment of it, and what a series of samples shows once none can come in between.
// It knows neither faults nor what explains them.
package timeline

import "time"

// MaxAhead is how far the clock of a machine may be ahead: by default of a record (Options), and of
// a machine before its boot.
const MaxAhead = 10 * time.Second

// Options bound what a time line admits and holds.
type Options struct {
	Lateness time.Duration // how much older than the newest a record may be
	MaxDelay time.Duration // how much older it may be where order does not matter
	MaxAhead time.Duration // how far ahead of the clock a record may say it is
	Series   int           // series under watch
	Points   int           // samples kept of a series
}

// Stats count what became of records and series.
type Stats struct {
	Late    uint64 // dropped: older than lateness and delay allow
	Overdue uint64 // counted, later than the lateness allows
	Ahead   uint64 // taken as of now: their clock is ahead

	EvictedSeries uint64
	EvictedPoints uint64
}

// Timeline is the event time of one engine. The newest record and the caller's
// clock move it forward; nothing moves it back.
type Timeline struct {
	Stats Stats

	opts  Options
	now   int64 // newest event time, unix nanoseconds
	clock int64 // newest time given to Advance, 0 when never called
	tasks tasks
	moved func() bool // what else happens when time moves on
}

// New makes a time line. Moved is called each time it moves, before anything that
// waited is done, and reports whether it changed anything.
func New(opts Options, moved func() bool) *Timeline {
	t := &Timeline{opts: opts, moved: moved}
	t.Reset(0, 0)
	return t
}

// Reset begins anew at these times. What waited is forgotten, counters stay.
func (t *Timeline) Reset(now, clock int64) {
	t.now, t.clock = min(now, MaxTime), min(clock, MaxTime)
	t.tasks = tasks{}
}

// Now is the newest event time, Clock the newest time given to Advance.
func (t *Timeline) Now() int64 { return t.now }

// Clock is the newest time given to Advance, 0 when it was never called.
func (t *Timeline) Clock() int64 { return t.clock }

// Lateness is how much older than the newest a record may be, in nanoseconds.
func (t *Timeline) Lateness() int64 { return int64(t.opts.Lateness) }

// Settled is when all that happened at that moment is known: one moment after the
// latest record of it may come.
func (t *Timeline) Settled(at int64) int64 { return at + t.Lateness() + 1 }

// watermark is the event time that no record may be older than.
func (t *Timeline) watermark() int64 { return t.now - t.Lateness() }

// Advance moves time forward without records, and reports whether that changed
// anything. Times that do not move forward are ignored.
func (t *Timeline) Advance(now time.Time) bool {
	at := now.UnixNano()
	if at <= t.clock || at > MaxTime {
		return false
	}
	t.clock = at
	return t.moveTo(at)
}

// moveTo makes at the newest event time and does what is due by then.
func (t *Timeline) moveTo(at int64) bool {
	if at <= t.now {
		return false
	}
	t.now = at
	changed := t.moved()
	return t.tasks.run(at) || changed
}
