package engine

import (
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// late decides on a record that is older than the lateness allows. Nothing waits
// for it any more, and yet it is news: its sender held it while the engine's
// process was away. What only confirms a fault may still do so; whoever needs
// records in order of time goes without it.
func (e *Engine) late(r *record) bool {
	if r.last < e.now-int64(e.opts.MaxDelay) {
		e.stats.Late++
		return false
	}
	r.heard = e.now
	return true
}

// confirms reports whether a record of w only adds to what a fault rests on,
// whenever it comes. A series needs its samples in order of time.
func (w *watch) confirms() bool { return w.Operator == rule.Occur }

// settleLate counts what became of r, which came late.
func (e *Engine) settleLate(r *record, wanted bool) {
	switch {
	case r.heard == 0:
	case wanted:
		e.stats.Overdue++
	default:
		e.stats.Late++
	}
}
