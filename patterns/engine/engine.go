// Package engine evaluates pattern rules on OTLP records in event time. It is
// pure: no I/O, no clock, no goroutine, no package state. The same calls with
// the same bytes give the same verdicts, with the same ids and revisions. An
// Engine is not safe for concurrent use.
//
// A rule watches records by event or metric name. A record whose condition
// holds becomes a mark on the time line of a fault (an instance of a rule,
// found by its key), at once or through the state of a series (counters,
// transitions, conditions that stay). After each mark the rule's expressions
// are evaluated over the marks; a fault whose expression holds has a verdict.
//
// Operators that later evidence can only confirm are decided at once. Those
// that later evidence could refute (stays, below_median) are decided
// when the lateness has passed, so that records out of order give the same
// answer as records in order.
package engine

import (
	"time"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Engine holds the state of all rules across batches and signals.
type Engine struct {
	opts  Options
	stats Stats

	rules   []*ruleState
	byName  map[string]*ruleState
	logs    map[string]interest // event name → who wants it; fixed after New
	metrics map[string]interest // metric name → who wants it; fixed after New
	links   int

	detections []*detection // in the order of their rules

	now   int64  // newest event time, unix nanoseconds
	clock int64  // newest time given to Advance, 0 when never called
	seq   uint64 // of instances and tasks: makes equal times ordered

	waiting lru[*instance] // faults without a verdict
	open    lru[*instance] // faults with one
	joins   map[string][]*instance
	linked  map[string]*linkEnds
	recent  recents
	series  seriesTable
	tasks   tasks

	tasksMost int // tasks at which the stale ones are dropped

	dirty []*instance // verdicts to give out, in the order they changed
	out   []verdict.Verdict
}

// New compiles rules into an engine.
func New(rules []rule.Rule, opts Options) (*Engine, error) {
	e := &Engine{opts: opts.withDefaults(), logs: map[string]interest{}, metrics: map[string]interest{}}
	if err := e.compile(rules); err != nil {
		return nil, err
	}
	e.clear()
	return e, nil
}

// clear drops all state but the rules and counters.
func (e *Engine) clear() {
	for _, s := range e.rules {
		s.instances = map[string]*instance{}
	}
	e.now, e.clock, e.seq = 0, 0, 0
	e.waiting, e.open = lru[*instance]{}, lru[*instance]{}
	e.joins = map[string][]*instance{}
	e.linked = map[string]*linkEnds{}
	e.recent = recents{by: map[string][]*recentMark{}}
	e.series = newSeriesTable()
	e.tasks = tasks{}
	e.dirty, e.out = nil, nil
	for _, d := range e.detections {
		d.reset(e)
	}
}

// Advance moves event time forward without records: deadlines pass, conditions
// that stay reach their time, quiet faults expire. It reports whether state
// changed; the caller then asks for Verdicts and writes its journal. Times that
// do not move forward are ignored.
func (e *Engine) Advance(now time.Time) bool {
	at := now.UnixNano()
	if at <= e.clock || at > maxTime {
		return false
	}
	e.clock = at
	return e.moveTo(at)
}

// moveTo makes at the newest event time and does what is due by then.
func (e *Engine) moveTo(at int64) bool {
	if at <= e.now {
		return false
	}
	e.now = at
	expired := e.recent.expire(e.now)
	return e.tasks.run(e, at) || expired
}

// watermark is the event time that no record may be older than.
func (e *Engine) watermark() int64 { return e.now - int64(e.opts.Lateness) }

// Verdicts returns the verdicts that are new or changed since the last call,
// one revision each, causes before symptoms.
func (e *Engine) Verdicts() []verdict.Verdict {
	e.flush()
	out := e.out
	e.out = nil
	return out
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Waiting, s.OpenVerdicts = e.waiting.len(), e.open.len()
	s.Recent, s.Series = e.recent.len(), e.series.order.len()
	for _, d := range e.detections {
		s.EvictedFindings += d.algorithm.Evicted()
	}
	return s
}
