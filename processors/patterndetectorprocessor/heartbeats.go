package patterndetectorprocessor

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// hear has the history note which agents watch. Those of strangers have another name by now
// (internal/ingress), and what is not proven counts as little.
func (d *detector) hear(ld plog.Logs) {
	keeper, ok := d.keeping.keeper.(history.AgentKeeper)
	if !ok {
		return
	}
	heartbeat.Each(ld, func(of pcommon.Map, record plog.LogRecord, beat heartbeat.Beat) {
		if rule.TrustOf(of, record.Attributes()) == verdict.Proven {
			keeper.Hear(beat)
		}
	})
}
