package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/patterns/engine"
)

// computed tells what each of eight ranks took for a step, as training code does over OTLP.
func computed(e *engine.Engine, step int64, host, domain string, took func(rank int64) float64) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("host.name", host)
	rm.Resource().Attributes().PutStr("tracecore.trust", "foreign")
	if domain != "" {
		rm.Resource().Attributes().PutStr("gen_ai.training.job_domain", domain)
	}
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("gen_ai.training.step.compute.duration")
	points := m.SetEmptyGauge().DataPoints()
	for rank := range int64(8) {
		p := points.AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(time.Duration(step) * 10 * time.Second)))
		p.SetDoubleValue(took(rank))
		p.Attributes().PutStr("gen_ai.training.job_id", "llama")
		p.Attributes().PutInt("gen_ai.training.rank", rank)
		p.Attributes().PutInt("gen_ai.training.step", step)
		p.Attributes().PutInt("gen_ai.training.world_size", 8)
	}
	e.Metrics(md)
}

// TestAStrangerAccusesAndHidesNoRank: whatever another tenant tells of a job under its id,
// the verdict about the job is the same as without him.
func TestAStrangerAccusesAndHidesNoRank(t *testing.T) {
	slow := func(which int64) func(int64) float64 {
		return func(rank int64) float64 {
			return map[bool]float64{true: 2, false: 1 + 0.01*float64(rank)}[rank == which]
		}
	}
	for name, stranger := range map[string]struct {
		domain string
		took   func(int64) float64
	}{
		"nobody":                       {},
		"accuses rank 2":               {"pods in namespace team-b", slow(2)},
		"accuses rank 2 of no domain":  {"", slow(2)},
		"says all are slow":            {"pods in namespace team-b", func(int64) float64 { return 9 }},
		"says all are slow, no domain": {"", func(int64) float64 { return 9 }},
		"says the slow one is fast":    {"user 65534", slow(-1)},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Options{})
			for step := range int64(12) {
				if stranger.took != nil {
					computed(e, step, "node-b", stranger.domain, stranger.took)
				}
				computed(e, step, "node-a", "pods in namespace team-a", slow(5))
				if stranger.took != nil {
					computed(e, step, "node-b", stranger.domain, stranger.took)
				}
			}
			var mine []map[string]string
			for _, v := range e.Verdicts() {
				if v.Pattern == "straggler" && v.Culprit["job_domain"] == "pods in namespace team-a" {
					mine = append(mine, v.Culprit)
				}
			}
			require.Len(t, mine, 1)
			require.Equal(t, "5", mine[0]["rank"])
			require.Equal(t, "node-a", mine[0]["host"])
		})
	}
}
