package patterndetectorprocessor

import (
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
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			if scope.Scope().Name() != heartbeat.Scope {
				continue
			}
			for _, record := range scope.LogRecords().All() {
				of := resource.Resource().Attributes()
				if beat, ok := heartbeat.Read(of, record); ok && rule.TrustOf(of, record.Attributes()) == verdict.Proven {
					keeper.Hear(beat)
				}
			}
		}
	}
}
