package ranks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// measure tells the book a metric of a machine: a sum of ints, or a gauge.
func (b *bench) measure(t *testing.T, at time.Duration, host, trust, name string, points map[string]attributes, value func(string) float64) {
	t.Helper()
	md := pmetric.NewMetrics()
	resource := md.ResourceMetrics().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", host)
	resource.Resource().Attributes().PutStr("tracecore.trust", trust)
	metric := resource.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName(name)
	list := func() pmetric.NumberDataPointSlice {
		if name == metricBusy {
			return metric.SetEmptyGauge().DataPoints()
		}
		return metric.SetEmptySum().DataPoints()
	}()
	for key, a := range points {
		point := list.AppendEmpty()
		point.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(at)))
		if name == metricBusy {
			point.SetDoubleValue(value(key))
		} else {
			point.SetIntValue(int64(value(key)))
		}
		require.NoError(t, point.Attributes().FromRaw(a))
	}
	b.now = at
	b.Metrics(md)
}

func TestHowMuchAJobSends(t *testing.T) {
	b := newBench(DefaultMost)
	for rank := range 16 {
		b.tell(t, 0, "process.start", rank, of(rank, 0, nil))
	}
	io := func(at time.Duration, host, trust string, sent float64) {
		b.measure(t, at, host, trust, metricTraffic, map[string]attributes{
			"a": {"gen_ai.training.job_id": "llm", "network.io.direction": "transmit", "network.peer.address": "10.0.0.1"},
			"b": {"gen_ai.training.job_id": "llm", "network.io.direction": "transmit", "network.peer.address": "10.0.0.2"},
			"c": {"gen_ai.training.job_id": "llm", "network.io.direction": "receive", "network.peer.address": "10.0.0.2"},
			"d": {"gen_ai.training.job_id": "other", "network.io.direction": "transmit", "network.peer.address": "10.0.0.2"},
		}, func(string) float64 { return sent })
	}
	io(10*time.Second, "node-0", "proven", 1000)
	require.Nil(t, b.job(t).Sends, "one sample is no rate")
	io(20*time.Second, "node-0", "proven", 6000)
	require.InDelta(t, 1000, *b.job(t).Sends, 0.1, "two peers, 5,000 bytes each in ten seconds")
	io(10*time.Second, "node-1", "proven", 0)
	io(20*time.Second, "node-1", "proven", 5000)
	require.InDelta(t, 2000, *b.job(t).Sends, 0.1)
	io(30*time.Second, "node-0", "foreign", 1e12)
	require.InDelta(t, 2000, *b.job(t).Sends, 0.1, "what a stranger says counts nothing")
	io(30*time.Second, "node-0", "proven", 10) // the receiver began anew
	require.InDelta(t, 1000, *b.job(t).Sends, 0.1)
	b.now = 2 * time.Minute
	require.Nil(t, b.job(t).Sends, "nothing tells of now")
}

func TestHowBusyTheGPUOfARankIs(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, 0, "process.start", 3, of(3, 0, nil))
	own := map[string]attributes{"a": {"gpu.id": "0000:ab:00.0", "gen_ai.training.rank": 3, "gen_ai.training.job_id": "llm"}}
	busy := map[string]attributes{"a": {"gpu.id": "0000:ab:00.0", "hw.gpu.task": "general"}, "b": {"gpu.id": "0000:ab:00.0", "hw.gpu.task": "encoder"}}
	b.measure(t, 10*time.Second, "node-1", "proven", metricOwner, own, func(string) float64 { return 1 })
	d, _ := b.State("llm", "", 3, began.Add(b.now))
	require.Empty(t, d.GPU, "of another machine")
	b.measure(t, 10*time.Second, "node-0", "proven", metricOwner, own, func(string) float64 { return 1 })
	b.measure(t, 10*time.Second, "node-0", "proven", metricBusy, busy, func(key string) float64 { return map[string]float64{"a": 0.03, "b": 1}[key] })
	d, _ = b.State("llm", "", 3, began.Add(b.now))
	require.Equal(t, "0000:ab:00.0", d.GPU)
	require.InDelta(t, 0.03, *d.GPUBusy, 1e-9)
	d, _ = b.State("llm", "", 3, began.Add(2*time.Minute))
	require.Nil(t, d.GPUBusy, "nothing tells of now")

	many := map[string]attributes{}
	for n := range 2 * mostGPUs {
		many[fmt.Sprint(n)] = attributes{"gpu.id": fmt.Sprint(n)}
	}
	b.measure(t, 20*time.Second, "node-0", "claimed", metricBusy, many, func(string) float64 { return 7 })
	require.Len(t, b.gpus, mostGPUs)
}
