package command

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/distro/internal/top"
)

// TestTopOfARecordingHasMetricsOfRanks: what a recording has of the CPU and the GPU of a rank,
// and of what a job sends, is shown as that of a running tracecore is. A document of a whole
// hour says the same as a message for each moment.
func TestTopOfARecordingHasMetricsOfRanks(t *testing.T) {
	began := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	logs := plog.NewLogs()
	of := logs.ResourceLogs().AppendEmpty()
	of.Resource().Attributes().PutStr("host.name", "node-1")
	record := of.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName("process.start")
	record.SetTimestamp(pcommon.NewTimestampFromTime(began))
	require.NoError(t, record.Attributes().FromRaw(map[string]any{
		"gen_ai.training.job_id": "llm", "gen_ai.training.rank": 3, "gen_ai.training.world_size": 4, "process.pid": 103, "process.executable.name": "python3",
		"gen_ai.training.rank_pid": 103, "gen_ai.training.rank_start_unix_nano": began.UnixNano(), "tracecore.trust": "proven",
	}))
	ranks, err := (&plog.JSONMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)

	hour := pmetric.NewMetrics()
	moments := make([]pmetric.Metrics, 0, 3)
	for i, at := range []time.Duration{10 * time.Second, time.Hour, time.Hour + 10*time.Second} {
		one := pmetric.NewMetrics()
		measured(t, one, began.Add(at), float64(i))
		moments = append(moments, one)
	}
	moments[0].CopyTo(hour)
	for _, later := range moments[1:] {
		for m, metric := range later.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			into := hour.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(m)
			for _, point := range pointsOf(metric).All() {
				point.CopyTo(pointsOf(into).AppendEmpty())
			}
		}
	}
	json := func(all ...pmetric.Metrics) (text string) {
		for _, one := range all {
			line, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(one)
			require.NoError(t, err)
			text += string(line) + "\n"
		}
		return text
	}
	for name, metrics := range map[string]string{"a message for each moment": json(moments...), "one of an hour": json(hour)} {
		t.Run(name, func(t *testing.T) {
			f := topFlags{replayFlags: replayFlags{zone: "UTC", lateness: defaultLateness()}}
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			source, err := f.recorded(cmd, []string{write(t, "a-metrics.json", metrics), write(t, "b-logs.json", string(ranks)+"\n")})
			require.NoError(t, err)
			p, err := source.Look(t.Context(), top.Want{Job: "llm", Rank: 3})
			require.NoError(t, err)
			require.NotNil(t, p.Rank)
			require.InDelta(t, 2, *p.Rank.CPU, 1e-9)
			require.Equal(t, "0000:65:00.0", p.Rank.GPU)
			require.InDelta(t, 0.5, *p.Rank.GPUBusy, 1e-9)
			require.Len(t, p.Jobs, 1)
			require.InDelta(t, 3000, *p.Jobs[0].Sends, 1e-9, "two peers, 10,000 and 20,000 bytes in ten seconds")
		})
	}
}

func pointsOf(metric pmetric.Metric) pmetric.NumberDataPointSlice {
	if metric.Type() == pmetric.MetricTypeSum {
		return metric.Sum().DataPoints()
	}
	return metric.Gauge().DataPoints()
}

// measured adds what the receivers of node-1 tell at a moment, of a rank that has used 20 s of
// CPU since the one before.
func measured(t *testing.T, md pmetric.Metrics, at time.Time, n float64) {
	t.Helper()
	resource := md.ResourceMetrics().AppendEmpty()
	require.NoError(t, resource.Resource().Attributes().FromRaw(map[string]any{"host.name": "node-1", "tracecore.trust": "proven"}))
	metrics := resource.ScopeMetrics().AppendEmpty().Metrics()
	rank := map[string]any{"gen_ai.training.job_id": "llm", "gen_ai.training.rank": 3}
	for _, one := range []struct {
		name       string
		value      float64
		attributes map[string]any
	}{
		{"process.cpu.time", 20 * n, map[string]any{"process.pid": 103}},
		{"hw.gpu.process.memory.usage", 1, map[string]any{"gpu.id": "0000:65:00.0"}},
		{"hw.gpu.utilization", 0.5, map[string]any{"gpu.id": "0000:65:00.0", "hw.gpu.task": "general"}},
		{"nccl.socket.io", 10_000 * n, map[string]any{"network.io.direction": "transmit", "network.peer.address": "10.0.0.1"}},
	} {
		metric := metrics.AppendEmpty()
		metric.SetName(one.name)
		var list pmetric.NumberDataPointSlice
		if one.name == "hw.gpu.utilization" {
			list = metric.SetEmptyGauge().DataPoints()
		} else {
			sum := metric.SetEmptySum()
			sum.SetIsMonotonic(true)
			sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			list = sum.DataPoints()
		}
		point := list.AppendEmpty()
		require.NoError(t, point.Attributes().FromRaw(rank))
		for key, value := range one.attributes {
			require.NoError(t, point.Attributes().PutEmpty(key).FromRaw(value))
		}
		point.SetTimestamp(pcommon.NewTimestampFromTime(at))
		if one.name == "nccl.socket.io" {
			point.SetIntValue(int64(one.value))
			again := list.AppendEmpty()
			point.CopyTo(again)
			again.Attributes().PutStr("network.peer.address", "10.0.0.2")
			again.SetIntValue(int64(2 * one.value))
		} else {
			point.SetDoubleValue(one.value)
		}
	}
}
