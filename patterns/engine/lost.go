package engine

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// eventLost tells that a receiver did not learn all of some time. No rule has to want it.
const eventLost = "tracecore.lost"

// maxLostEvents bounds the events of one record that may have been lost.
const maxLostEvents = 64

// loses takes what a receiver says that it lost, and reports whether that was one. Its word is
// taken where it is proven: a stranger would put doubt on verdicts.
func (e *Engine) loses(r *record) bool {
	if r.source != eventLost || !e.admit(r) || r.trust != verdict.Proven {
		return false
	}
	a := r.attributes
	since, _ := rule.Integer(a, "tracecore.lost.since_unix_nano")
	count, _ := rule.Integer(a, "tracecore.lost.count")
	l := fault.Loss{
		Host: clean(rule.Text(r.resource, "host.name")), Things: clean(rule.Text(a, "tracecore.lost.things")), Why: clean(rule.Text(a, "tracecore.lost.why")),
		Count: max(0, count), Since: since, Until: r.Time,
	}
	if l.Host == "" || l.Things == "" || since <= 0 || since > r.Time {
		return false
	}
	if events, ok := a.Get("tracecore.lost.events"); ok && events.Type() == pcommon.ValueTypeSlice {
		for i := range min(events.Slice().Len(), maxLostEvents) {
			l.Events = append(l.Events, clean(events.Slice().At(i).AsString()))
		}
	}
	return e.faults.Lose(l)
}
