// Package engine evaluates pattern rules on OTLP records in event time. It is
// pure: no I/O, no clock, no goroutine, no package state. The same calls with
// the same bytes give the same verdicts. An Engine is not safe for concurrent
// use.
package engine

import (
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Engine holds the state of all rules across batches and signals.
type Engine struct {
	opts  Options
	stats Stats
}

// New compiles rules into an engine.
func New(rules []rule.Rule, opts Options) (*Engine, error) {
	return &Engine{opts: opts.withDefaults()}, nil
}

// Logs evaluates each record and returns copies of those some rule wanted, for
// the caller's journal: the same calls again rebuild the same state.
func (e *Engine) Logs(ld plog.Logs) plog.Logs { return plog.NewLogs() }

// Metrics is Logs for data points.
func (e *Engine) Metrics(md pmetric.Metrics) pmetric.Metrics { return pmetric.NewMetrics() }

// Advance moves event time forward without records: deadlines pass, conditions
// that stay reach their time, quiet faults expire. It reports whether state
// changed; the caller then asks for Verdicts and writes its journal.
func (e *Engine) Advance(now time.Time) bool { return false }

// Verdicts returns the verdicts that are new or changed since the last call,
// one revision each, causes before symptoms.
func (e *Engine) Verdicts() []verdict.Verdict { return nil }

// Snapshot returns the state; equal states give equal bytes.
func (e *Engine) Snapshot() ([]byte, error) { return nil, nil }

// Restore replaces the state by that of a snapshot. Faults of rules that no
// longer exist are dropped and counted.
func (e *Engine) Restore(snapshot []byte) error { return nil }

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }
