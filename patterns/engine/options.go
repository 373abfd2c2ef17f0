package engine

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/cut"
	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
)

// Options bound what an engine holds. Zero values take the defaults.
type Options struct {
	// Lateness is how much older than the newest event time a record may be and
	// still count wherever it belongs.
	Lateness time.Duration // 10 s
	// MaxDelay is how much older it may be and still confirm a fault, where order
	// does not matter. What comes later is counted and dropped.
	MaxDelay time.Duration // as Lateness
	// MaxAhead is how far ahead of the time given to Advance a record may say it
	// is. A record further ahead has a broken clock and is taken as of then.
	MaxAhead time.Duration // 10 s

	Waiting      int // faults without a verdict yet: 10,000
	OpenVerdicts int // faults with a verdict: 5,000
	Marks        int // marks per evidence of one fault: 32
	Recent       int // records kept because their fault may come after them: 10,000
	Series       int // time series under watch: 20,000
	Points       int // samples kept per series: 64
	FanOut       int // faults one record can join: 64
	Ranks        int // ranks of the starts of all jobs: 524,288
	Queue        int // verdicts that wait for Verdicts: 20,000

	// Unread is given each record that no rule wanted, and its resource, as it came. It keeps
	// copies. nil: nobody asks.
	Unread func(resource pcommon.Resource, record plog.LogRecord)
}

// recordLimits bound what one record brings, before anything looks at it: conditions
// see no more, and the journal holds no more. A list of all ranks fits.
var recordLimits = cut.Limits{Attributes: 256, Text: 16 << 10, Bytes: 4 << 20}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value *time.Duration
		then  time.Duration
	}{{&o.Lateness, 10 * time.Second}, {&o.MaxAhead, timeline.MaxAhead}} {
		if *d.value <= 0 {
			*d.value = d.then
		}
	}
	o.MaxDelay = max(o.MaxDelay, o.Lateness)
	for _, d := range []struct {
		value *int
		then  int
	}{
		{&o.Waiting, 10_000}, {&o.OpenVerdicts, 5_000}, {&o.Marks, 32}, {&o.Recent, 10_000},
		{&o.Series, 20_000}, {&o.Points, 64}, {&o.FanOut, 64}, {&o.Queue, 20_000}, {&o.Ranks, 1 << 19},
	} {
		if *d.value <= 0 {
			*d.value = d.then
		}
	}
	return o
}

func (o Options) time() timeline.Options {
	return timeline.Options{Lateness: o.Lateness, MaxDelay: o.MaxDelay, MaxAhead: o.MaxAhead, Series: o.Series, Points: o.Points}
}

func (o Options) faults() fault.Options {
	return fault.Options{Waiting: o.Waiting, OpenVerdicts: o.OpenVerdicts, Marks: o.Marks, Recent: o.Recent, FanOut: o.FanOut, Queue: o.Queue}
}

type (
	timeStats  = timeline.Stats
	faultStats = fault.Stats
)

// Stats count what an engine did since it was made, and what it holds now.
type Stats struct {
	timeStats
	faultStats

	Matched         uint64 // records some rule wanted
	Unmatched       uint64 // records no rule wanted
	Unkeyed         uint64 // wanted, but without a field of the key or of by
	UnkeyedBy       string // the first of them: which pattern, on which event
	Cut             uint64 // resources, records and points beyond recordLimits, judged by what is left
	EvalErrors      uint64 // conditions and values that could not be evaluated on a record
	EvalError       string // the first of them: which pattern, on which event, and why
	EvictedRuns     uint64 // jobs whose starts were forgotten for want of room
	EvictedFindings uint64 // what detectors forgot because of their caps

	Series int // now
}
