package engine

import (
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// CutLogs returns ld with its resources, and the records that rules want, cut to the limits, and
// how many it cut. It returns ld itself where all keep them, as nearly all do. Logs cuts and
// counts what nobody has cut before, but a hash takes as long as the text is. CutLogs and
// CutMetrics may be called beside all other methods. A caller with a lock around the engine cuts
// before he takes it and counts what was cut: so no small record waits for that of a large one.
func (e *Engine) CutLogs(ld plog.Logs) (short plog.Logs, cut int) {
	return recordLimits.Logs(ld, func(event string) bool {
		return event == rule.EventStart || event == eventLost || !e.logs[event].none()
	})
}

// CutMetrics is CutLogs for Metrics.
func (e *Engine) CutMetrics(md pmetric.Metrics) (short pmetric.Metrics, cut int) {
	return recordLimits.Metrics(md, func(metric string) bool { return !e.metrics[metric].none() })
}
