// Package engine evaluates pattern rules on OTLP records in event time. It is
// pure: no I/O, no clock, no goroutine, no package state. The same calls with
// the same bytes give the same verdicts, with the same ids and revisions. An
// Engine is not safe for concurrent use.
//
// A record takes these steps, each in a room that knows nothing of those after it:
//
//  1. logs.go, metrics.go: its name leads to the evidence that wants it.
//  2. condition.go: does it meet the condition of that evidence?
//  3. timeline: does it belong in event time, or is it too late?
//     runs.go asks package run which start of its job it is about.
//  4. record.go: its fields become a mark, or a sample of a series; timeline says
//     what the series shows, at once or when no sample can come in between.
//  5. fault: the mark joins the faults it belongs to; does their evidence suffice?
//  6. incident: which open verdict explains which?
//
// Operators that later evidence can only confirm are decided at once. Those
// that later evidence could refute (stays, below_median) are decided when the
// lateness has passed, so that records out of order give the same answer as
// records in order.
package engine

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Engine holds the state of all rules across batches and signals.
type Engine struct {
	own Stats // what no room below counts

	logs       map[string]interest // event name → who wants it; fixed after New
	metrics    map[string]interest // metric name → who wants it; fixed after New
	watches    map[*fault.Evidence]*watch
	order      []*watch     // as the rules have them
	detections []*detection // in the order of their rules
	beginnings rule.Beginnings
	judged     *watch                                                 // the last that looked at a record
	unread     func(resource pcommon.Resource, record plog.LogRecord) // may be nil

	time   *timeline.Timeline
	runs   *run.Book
	series *timeline.Table
	faults *fault.Set
}

// New compiles rules into an engine.
func New(rules []rule.Rule, opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	e := &Engine{logs: map[string]interest{}, metrics: map[string]interest{}, watches: map[*fault.Evidence]*watch{}, beginnings: rule.NewBeginnings(), unread: opts.Unread}
	compiled, err := e.compile(rules)
	if err != nil {
		return nil, err
	}
	e.time = timeline.New(opts.time(), func() bool { return e.faults.Forget() })
	e.runs = run.NewBook(opts.Ranks)
	e.series = timeline.NewTable(e.time)
	e.faults = fault.NewSet(opts.faults(), compiled, e.time, fault.Starts{
		Followed: func(id, domain, start string, trust verdict.Trust) int64 {
			return e.runs.Followed(run.Job{ID: id, Domain: domain, Trust: trust}, start)
		},
		Together: func(id, domain, one, other string, trust verdict.Trust) int64 {
			return e.runs.Together(run.Job{ID: id, Domain: domain, Trust: trust}, one, other)
		},
	})
	for _, d := range e.detections {
		d.reset()
	}
	return e, nil
}

// Advance moves event time forward without records: deadlines pass, conditions
// that stay reach their time, quiet faults expire. It reports whether state
// changed; the caller then asks for Verdicts and writes its journal. Times that
// do not move forward are ignored.
func (e *Engine) Advance(now time.Time) bool { return e.time.Advance(now) }

// Resumed notes that this engine goes on at that time with what an earlier process has left, before time passes in it. It
// reports whether that changed anything: verdicts that wait for other witnesses wait anew.
func (e *Engine) Resumed(now time.Time) bool { return e.faults.Resumed(now.UnixNano()) }

// Verdicts returns the verdicts that are new or changed since the last call,
// one revision each, causes before symptoms.
func (e *Engine) Verdicts() []verdict.Verdict { return e.faults.Verdicts() }

// Open returns the newest revision of every open verdict that was given out.
func (e *Engine) Open() []verdict.Verdict { return e.faults.Open() }

// SwitchOff ends the open verdicts of rules by name, and forgets their faults: the next
// engine goes on without these rules.
func (e *Engine) SwitchOff(rules []string) { e.faults.SwitchOff(rules) }

// Heard is when a record last came that a piece of evidence reads, whether it met the
// condition or not: what feeds it speaks.
type Heard struct {
	Pattern, Evidence string
	At                int64 // unix nanoseconds of event time, 0 for never
}

// Heard returns all evidence, in the order of the rules. It is no part of the state: an
// engine that was restored has heard what it was shown since.
func (e *Engine) Heard() []Heard {
	all := make([]Heard, 0, len(e.order))
	for _, w := range e.order {
		all = append(all, Heard{Pattern: w.Rule.Name, Evidence: w.Name, At: w.heard})
	}
	return all
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.own
	s.timeStats, s.faultStats = e.time.Stats, e.faults.Stats()
	s.NotRestored += e.own.NotRestored
	s.Series, s.EvictedRuns = e.series.Len(), e.runs.Evicted
	for _, d := range e.detections {
		s.EvictedFindings += d.algorithm.Evicted()
	}
	return s
}
