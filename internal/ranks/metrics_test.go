package ranks

import (
	"fmt"
	"math"
	"strconv"
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
		if name == metricBusy || name == metricCPU {
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

// Ranks of another domain that say the same id take nothing from the figures of a rank.
func TestMeasuresOfADomainAreItsOwn(t *testing.T) {
	b := newBench(DefaultMost)
	domains := []string{"user 1000", "user 1001"}
	for _, domain := range domains {
		b.tell(t, 0, "process.start", 3, of(3, 0, attributes{"gen_ai.training.job_domain": domain}))
	}
	for at := range 2 {
		points := map[string]attributes{}
		for _, domain := range domains {
			points[domain] = attributes{"process.pid": 7, "gen_ai.training.rank": 3, "gen_ai.training.job_id": "llm", "gen_ai.training.job_domain": domain}
		}
		b.measure(t, time.Duration(at)*10*time.Second, "node-0", "proven", metricCPU, points, func(domain string) float64 {
			return float64(10*at) * map[string]float64{"user 1000": 0.5, "user 1001": 8}[domain]
		})
	}
	d, _ := b.State("llm", "user 1000", 3, began.Add(b.now))
	require.NotNil(t, d.CPU)
	require.InDelta(t, 0.5, *d.CPU, 1e-9)
}

func TestWhatCPUARankUses(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, 0, "process.start", 3, of(3, 0, nil))
	used := func(at time.Duration, host, trust string, seconds map[int]float64, more ...string) *float64 {
		points := map[string]attributes{}
		for pid := range seconds {
			a := attributes{"process.pid": pid, "gen_ai.training.rank": 3, "gen_ai.training.job_id": "llm"}
			for _, key := range more {
				a[key] = "user"
			}
			points[fmt.Sprint(pid)] = a
		}
		b.measure(t, at, host, trust, metricCPU, points, func(key string) float64 {
			pid, err := strconv.Atoi(key)
			require.NoError(t, err)
			return seconds[pid]
		})
		d, found := b.State("llm", "", 3, began.Add(b.now))
		require.True(t, found)
		return d.CPU
	}
	cores := func(want float64, got *float64) {
		t.Helper()
		require.NotNil(t, got)
		require.InDelta(t, want, *got, 1e-9)
	}
	require.Nil(t, used(10*time.Second, "node-0", "proven", map[int]float64{7: 100}), "one sample is no rate")
	cores(1, used(20*time.Second, "node-0", "proven", map[int]float64{7: 110, 8: 50}))
	cores(3, used(30*time.Second, "node-0", "proven", map[int]float64{7: 120, 8: 70}))
	cores(3, used(30*time.Second, "node-0", "proven", map[int]float64{7: 120, 8: 70}))
	cores(3, used(35*time.Second, "node-1", "proven", map[int]float64{7: 999}))
	cores(3, used(35*time.Second, "node-0", "foreign", map[int]float64{7: 999}))
	cores(3, used(35*time.Second, "node-0", "proven", map[int]float64{7: 999}, "cpu.mode"))
	for _, odd := range []float64{math.NaN(), math.Inf(1), -1} {
		cores(3, used(36*time.Second, "node-0", "proven", map[int]float64{7: odd}))
	}
	cores(2, used(40*time.Second, "node-0", "proven", map[int]float64{7: 5})) // another process of that number
	cores(0.5, used(95*time.Second, "node-0", "proven", map[int]float64{7: 32.5}))
	used(400*24*time.Hour, "node-0", "claimed", map[int]float64{7: 1})
	require.Nil(t, used(75*time.Second, "node-0", "proven", map[int]float64{7: 22.5}), "it may come late")
	require.Nil(t, used(85*time.Second, "node-0", "proven", map[int]float64{7: 27.5}), "what was said of the future counts no more")
	cores(0.5, used(95*time.Second, "node-0", "proven", map[int]float64{7: 32.5}))
	cores(mostCores, used(96*time.Second, "node-0", "proven", map[int]float64{7: math.MaxFloat64}))
	require.Len(t, b.jobs[jobKey{id: "llm"}].ranks[3].cpu, 1, "process 8 has not been told of for a minute")
	many := map[int]float64{}
	for pid := range 2 * mostProcesses {
		many[100+pid] = 1
	}
	used(97*time.Second, "node-0", "proven", many)
	require.Len(t, b.jobs[jobKey{id: "llm"}].ranks[3].cpu, mostProcesses)
	b.now = 5 * time.Minute
	d, _ := b.State("llm", "", 3, began.Add(b.now))
	require.Nil(t, d.CPU, "nothing tells of now")
}

// A sample that comes late, as one that a sender tried again, changes nothing of what is told of now.
// Where all that follow it are as old, the clock was set.
func TestASampleThatComesLate(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, 0, "process.start", 3, of(3, 0, nil))
	job := attributes{"gen_ai.training.job_id": "llm", "gen_ai.training.rank": 3, "process.pid": 7}
	with := func(more attributes) map[string]attributes {
		for key, value := range job {
			more[key] = value
		}
		return map[string]attributes{"a": more}
	}
	points := map[string]map[string]attributes{
		metricCPU:     with(attributes{}),
		metricLine:    with(attributes{"network.local.address": "10.0.0.1", "network.interface.name": "eth0", "network.io.direction": "transmit"}),
		metricTraffic: with(attributes{"network.io.direction": "transmit"}),
		metricOwner:   with(attributes{"gpu.id": "0000:ab:00.0"}),
		metricBusy:    {"a": {"gpu.id": "0000:ab:00.0"}},
	}
	sample := func(at time.Duration, value float64) {
		for name, of := range points {
			b.measure(t, at, "node-0", "proven", name, of, func(string) float64 {
				if name == metricBusy {
					return value / 1000
				}
				return value
			})
		}
	}
	told := func(now time.Duration) []*float64 {
		b.now = now
		d, found := b.State("llm", "", 3, began.Add(now))
		require.True(t, found)
		return []*float64{d.CPU, d.Sends, b.job(t).Sends, d.GPUBusy}
	}
	numbers := func(cpu, sends, job, busy float64) []*float64 { return []*float64{&cpu, &sends, &job, &busy} }
	sample(200*time.Second, 100)
	sample(210*time.Second, 120)
	want := numbers(2, 2, 2, 0.12)
	require.Equal(t, want, told(210*time.Second))
	for _, late := range []time.Duration{205, 150, 140, 20} {
		sample(late*time.Second, 10)
		require.Equal(t, want, told(211*time.Second), "%d s", late)
	}
	sample(220*time.Second, 150)
	require.Equal(t, numbers(3, 3, 3, 0.15), told(220*time.Second))
	for at := range 3 {
		sample(time.Duration(40+10*at)*time.Second, float64(5*at))
	}
	require.Equal(t, numbers(0.5, 0.5, 0.5, 0.01), told(60*time.Second), "the clock was set back")
	b.measure(t, 65*time.Second, "node-0", "proven", metricBusy, points[metricBusy], func(string) float64 { return math.NaN() })
	require.Equal(t, numbers(0.5, 0.5, 0.5, 0.01), told(65*time.Second))
}

// The rail of a rank is where most of its data goes, as its node tells it. Where nothing goes
// any more, it stays.
func TestTheRailOfARank(t *testing.T) {
	b := newBench(DefaultMost)
	for rank := range 2 {
		b.tell(t, 0, "process.start", rank, of(rank, 0, nil))
	}
	moves := func(at time.Duration, host, trust string, rank int, bytes map[string]float64) (rail string, sends *float64) {
		points := map[string]attributes{}
		for name := range bytes {
			for _, direction := range []string{"transmit", "receive"} {
				a := attributes{"process.pid": 7, "gen_ai.training.rank": rank, "gen_ai.training.job_id": "llm", "network.io.direction": direction, "network.local.address": "10.0.0." + name}
				if name != "9" {
					a["network.interface.name"] = "eth" + name
				}
				points[name+" "+direction] = a
			}
		}
		b.measure(t, at, host, trust, metricLine, points, func(key string) float64 { return bytes[key[:1]] })
		d, found := b.State("llm", "", rank, began.Add(b.now))
		require.True(t, found)
		return d.Rail, d.Sends
	}
	rails := func() string { return b.job(t).Nodes[0].Rails }

	rail, sends := moves(10*time.Second, "node-0", "proven", 0, map[string]float64{"0": 1000, "3": 0})
	require.Empty(t, rail, "one sample says not what goes now")
	require.Nil(t, sends)
	rail, sends = moves(20*time.Second, "node-0", "proven", 0, map[string]float64{"0": 2000, "3": 9000})
	require.Equal(t, "eth3", rail)
	require.InDelta(t, 1000, *sends, 1e-9)
	rail, _ = moves(25*time.Second, "node-0", "proven", 0, map[string]float64{"0": 8000, "3": 14000})
	require.Equal(t, "eth3", rail, "another carries a fifth more")
	require.Empty(t, rails(), "that of rank 1 is not known")
	moves(10*time.Second, "node-0", "proven", 1, map[string]float64{"9": 0})
	rail, _ = moves(20*time.Second, "node-0", "proven", 1, map[string]float64{"9": 10})
	require.Equal(t, "10.0.0.9", rail, "an address where its interface has no name")
	require.Equal(t, "eth3,10.0.0.9", rails())
	for _, stranger := range [][2]string{{"node-0", "foreign"}, {"node-1", "proven"}} {
		moves(30*time.Second, stranger[0], stranger[1], 0, map[string]float64{"5": 0})
		rail, _ = moves(31*time.Second, stranger[0], stranger[1], 0, map[string]float64{"5": 1e12})
		require.Equal(t, "eth3", rail)
	}
	rail, _ = moves(32*time.Second, "node-0", "proven", 0, map[string]float64{"0": 90_000, "3": 9000})
	require.Equal(t, "eth0", rail, "it has changed")
	moves(40*time.Second, "node-0", "proven", 1, map[string]float64{"0": 0})
	moves(50*time.Second, "node-0", "proven", 1, map[string]float64{"0": 1000})
	require.Equal(t, "eth0", rails(), "one for all")
	rail, sends = moves(5*time.Minute, "node-0", "proven", 0, map[string]float64{"0": 90_000})
	require.Equal(t, "eth0", rail, "where it went last")
	require.Nil(t, sends)

	many := map[string]float64{}
	for n := range 10 {
		many[strconv.Itoa(n)] = 1
	}
	moves(6*time.Minute, "node-0", "proven", 0, many)
	require.Len(t, b.jobs[jobKey{id: "llm"}].ranks[0].lines, mostLines)
}
