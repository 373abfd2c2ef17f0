// Package gpufaults proves that what the gpu receiver emits is what the patterns
// read: a library with scripted faults, the helper program, the receiver, the
// patterns, a verdict.
package gpufaults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
)

const (
	node = "node-1" // as in the golden records of kernelevents
	gpu0 = "0000:1a:00.0"
)

var began = time.Unix(1_700_000_000, 0)

// fault is one row of the table: what the library does. Reading i comes at i times
// every.
type fault struct {
	name     string
	readings int
	every    time.Duration
	script   func(i int) []string
	event    map[int]string // record that must have come with a reading
	// beside is what others tell the patterns beside a reading; nil: nothing.
	beside func(t *testing.T, i int, at time.Time, e *engine.Engine)
}

func always(lines ...string) func(int) []string { return func(int) []string { return lines } }

// since adds lines from a reading on.
func since(first int, lines ...string) func(int) []string {
	return func(i int) []string {
		if i < first {
			return []string{"gpus 4"}
		}
		return append([]string{"gpus 4"}, lines...)
	}
}

// nvlink has all links of GPU 0 carry 1 GiB more at each reading, link 3 a tenth.
func nvlink(i int, more ...string) []string {
	lines := append([]string{"gpus 1"}, more...)
	for link := range 18 {
		kib := i << 20
		if link == 3 {
			kib /= 10
		}
		lines = append(lines, fmt.Sprintf("set 0 field_138_%d %d", link, kib), fmt.Sprintf("set 0 field_139_%d %d", link, kib))
	}
	return lines
}

// heat has GPUs spend ten seconds more in thermal slowdown at each reading.
func heat(i int, gpus ...int) []string {
	lines := []string{"gpus 4"}
	for _, gpu := range gpus {
		lines = append(lines, fmt.Sprintf("set %d field_270 %d", gpu, int64(i)*10e9))
	}
	return lines
}

// faults are the rows of the table, in its order.
func faults() []fault {
	return []fault{
		{name: "healthy", readings: 30, every: 30 * time.Second, script: always("gpus 4", "process 0 4711 1048576")},
		{name: "uncorrected memory errors, by the counter alone", readings: 4, every: 10 * time.Second, script: since(2, "set 0 ecc_uncorrected_volatile_all 2", "set 0 ecc_uncorrected_aggregate_all 9")},
		{name: "corrected memory errors", readings: 4, every: 10 * time.Second, script: since(2, "set 0 ecc_corrected_volatile_all 5000")},
		{
			name: "uncorrected memory errors and Xid 95", readings: 4, every: 10 * time.Second, event: map[int]string{2: "gpu.xid"},
			script: since(2, "set 0 ecc_uncorrected_volatile_all 1", "process 0 4711 1048576", "event 1 0 8 95"),
		},
		{
			name: "a row of memory that cannot be remapped, and Xid 64", readings: 4, every: 10 * time.Second, event: map[int]string{2: "gpu.xid"},
			script: since(2, "set 0 remap_failed 1", "set 0 remapped_uncorrected 1", "event 1 0 8 64"),
		},
		{name: "one hot GPU", readings: 6, every: 30 * time.Second, script: func(i int) []string { return heat(i, 1) }},
		{name: "three hot GPUs of four", readings: 6, every: 30 * time.Second, script: func(i int) []string { return heat(i, 0, 1, 2) }},
		{
			name: "a slow NVLink that makes errors", readings: 36, every: 30 * time.Second,
			script: func(i int) []string { return nvlink(i, fmt.Sprintf("set 0 nvlink_error_3_2 %d", i)) },
		},
		{
			name: "an NVLink that is down", readings: 36, every: 30 * time.Second,
			script: func(i int) []string { return nvlink(i, "set 0 nvlink_state_3 0") },
		},
		{name: "a PCIe link at half its width", readings: 8, every: 30 * time.Second, script: always("gpus 4", "set 0 pcie_width 8", "set 0 pcie_replays 12")},
		{name: "a lost GPU", readings: 4, every: 10 * time.Second, script: since(2, "code 0 * 15"), event: map[int]string{2: "gpu.lost"}},
		{
			name: "a GPU that is lost and comes back", readings: 5, every: 10 * time.Second, event: map[int]string{2: "gpu.lost", 4: "gpu.recovered"},
			script: func(i int) []string {
				if i == 2 || i == 3 {
					return []string{"gpus 4", "code 0 * 15"}
				}
				return []string{"gpus 4"}
			},
		},
		{ // one verdict; the kernel knows who used it
			name: "Xid 79 from the library three times, and from the kernel", readings: 4, every: 10 * time.Second, event: map[int]string{2: "gpu.xid"},
			script: since(2, "event 1 0 8 79", "event 2 0 8 79", "event 3 0 8 79"),
			beside: func(t *testing.T, i int, at time.Time, e *engine.Engine) {
				if i == 2 {
					e.Logs(kernelXid79(t, at))
				}
			},
		},
		{ // the kernel's line has the pid
			name: "an application's Xid on a GPU of two processes", readings: 4, every: 10 * time.Second,
			script: since(2, "process 0 4711 1", "process 0 4712 1", "event 1 0 8 13"),
		},
		{
			name: "a slow rank on a hot GPU", readings: 12, every: 10 * time.Second, beside: slowRank,
			script: func(i int) []string { return []string{"gpus 4", fmt.Sprintf("set 2 field_270 %d", int64(i)*15e8)} },
		},
		{
			name: "a slow rank and a power brake", readings: 12, every: 10 * time.Second, beside: slowRank,
			script: func(i int) []string { return []string{"gpus 4", fmt.Sprintf("set 2 field_271 %d", int64(i)*15e8)} },
		},
		{
			name: "a GPU that a rank has filled, which the CUDA driver refuses 2 GiB", readings: 4, every: 10 * time.Second, beside: refusal,
			script: always("gpus 4", "set 0 memory_used 84825604096", "process 0 42 84825604096"),
		},
		{
			name: "the same, and another process holds 70 GiB", readings: 4, every: 10 * time.Second, beside: refusal,
			script: always("gpus 4", "set 0 memory_used 84825604096", "process 0 42 9663676416", "process 0 999 75161927680"),
		},
		{
			name: "the same refusal, with 20 GiB free a moment before", readings: 4, every: 10 * time.Second, beside: refusal,
			script: always("gpus 4", "process 0 42 64424509440"),
		},
	}
}

// TestScriptedFaultsBecomeVerdicts holds what is said of each fault to its row.
func TestScriptedFaultsBecomeVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it plays faults in real time")
	}
	t.Setenv("K8S_NODE_NAME", node)
	host := gputest.New(t)
	rules, err := patterns.Library()
	require.NoError(t, err)
	var rows []string
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			e, err := engine.New(rules, engine.Options{})
			require.NoError(t, err)
			s := &scene{T: t, host: host, engine: e}
			host.NVML.Script(f.script(0)...)
			s.start()
			for i := range f.readings {
				s.play(i, &f)
			}
			s.advance(began.Add(time.Duration(f.readings)*f.every + time.Minute))
			row := f.row(s.said())
			check(t, row)
			rows = append(rows, row)
		})
	}
	finish(t, rows)
}

// scene is the receiver between a scripted library and the patterns.
type scene struct {
	*testing.T
	host   *gputest.Host
	engine *engine.Engine

	mu       sync.Mutex
	readings int
	last     pmetric.Metrics
	records  []plog.Logs

	heard    []string // events, all of them
	verdicts []verdict.Verdict
}

// start runs the receiver as it is shipped, but in a hurry.
func (s *scene) start() {
	factory, settings := gpureceiver.NewFactory(), receivertest.NewNopSettings(gpureceiver.NewFactory().Type())
	config := factory.CreateDefaultConfig().(*gpureceiver.Config)
	config.Source, config.Helper, config.NVML.Library = gpureceiver.NVML, s.host.Helper, s.host.NVML.File
	config.CollectionInterval, config.RetryInterval = 5*time.Millisecond, 5*time.Millisecond
	metrics, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readings, s.last = s.readings+1, md
		return nil
	})
	require.NoError(s, err)
	logs, err := consumer.NewLogs(func(_ context.Context, ld plog.Logs) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records = append(s.records, ld)
		return nil
	})
	require.NoError(s, err)
	ofMetrics, err := factory.CreateMetrics(s.Context(), settings, config, metrics)
	require.NoError(s, err)
	ofLogs, err := factory.CreateLogs(s.Context(), settings, config, logs)
	require.NoError(s, err)
	require.NoError(s, ofMetrics.Start(s.Context(), componenttest.NewNopHost()))
	require.NoError(s, ofLogs.Start(s.Context(), componenttest.NewNopHost()))
	s.Cleanup(func() {
		require.NoError(s, ofLogs.Shutdown(context.Background()))
		require.NoError(s, ofMetrics.Shutdown(context.Background()))
	})
}

// play lets the library do what it does at reading i, and gives the patterns the
// reading and the records, at that reading's time.
func (s *scene) play(i int, f *fault) {
	at := began.Add(time.Duration(i) * f.every)
	s.host.NVML.Script(f.script(i)...)
	reading, records := s.next(f.event[i])
	s.engine.Advance(at)
	for _, ld := range records {
		restampLogs(ld, at)
		s.engine.Logs(ld)
	}
	if f.beside != nil {
		f.beside(s.T, i, at, s.engine)
	}
	restampMetrics(reading, at)
	s.engine.Metrics(reading)
	s.advance(at)
}

// next returns a reading that began after the call, and the records until then:
// the first after it may have begun before. An event is waited for.
func (s *scene) next(event string) (reading pmetric.Metrics, records []plog.Logs) {
	s.mu.Lock()
	before := s.readings
	s.mu.Unlock()
	require.Eventually(s, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, ld := range s.records {
			for _, r := range ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
				s.heard = append(s.heard, r.EventName())
			}
		}
		records, s.records = append(records, s.records...), nil
		if s.readings < before+2 || event != "" && !slices.Contains(s.heard, event) {
			return false
		}
		reading = pmetric.NewMetrics()
		s.last.CopyTo(reading)
		return true
	}, hosttest.Patience, time.Millisecond, "no reading, or no %s", event)
	return reading, records
}

func (s *scene) advance(to time.Time) {
	s.engine.Advance(to)
	for _, v := range s.engine.Verdicts() {
		s.verdicts = slices.DeleteFunc(s.verdicts, func(old verdict.Verdict) bool { return old.ID == v.ID })
		s.verdicts = append(s.verdicts, v)
	}
}

// said are the verdicts as they stand at the end, each in a line.
func (s *scene) said() []string {
	var lines []string
	for _, v := range s.verdicts {
		status := ""
		if v.Status == verdict.Resolved {
			status = ", resolved"
		}
		role := ""
		if v.Role == verdict.Symptom {
			role = ", a symptom"
		}
		lines = append(lines, fmt.Sprintf("`%s`, %s%s%s: %s", v.Pattern, v.Confidence, role, status, v.Headline))
	}
	slices.Sort(lines)
	return lines
}

func restampMetrics(md pmetric.Metrics, at time.Time) {
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		points := pmetric.NewNumberDataPointSlice()
		if m.Type() == pmetric.MetricTypeSum {
			points = m.Sum().DataPoints()
		} else if m.Type() == pmetric.MetricTypeGauge {
			points = m.Gauge().DataPoints()
		}
		for _, p := range points.All() {
			p.SetStartTimestamp(pcommon.NewTimestampFromTime(began.Add(-time.Hour)))
			p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		}
	}
}

func restampLogs(ld plog.Logs, at time.Time) {
	for _, r := range ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
		r.SetTimestamp(pcommon.NewTimestampFromTime(at))
		r.Attributes().PutInt("kernelevents.first_time_unix_nano", at.UnixNano())
		r.Attributes().PutInt("kernelevents.last_time_unix_nano", at.UnixNano())
	}
}

// kernelXid79 is the record of Xid 79 to which kernelevents' own test holds it,
// of the same GPU.
func kernelXid79(t *testing.T, at time.Time) plog.Logs {
	ld, err := golden.ReadLogs("../../../receivers/kerneleventsreceiver/testdata/golden/xid.yaml")
	require.NoError(t, err)
	ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().RemoveIf(func(r plog.LogRecord) bool {
		xid, _ := r.Attributes().Get("kernelevents.xid")
		return xid.Int() != 79
	})
	require.Equal(t, 1, ld.LogRecordCount())
	ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr("gpu.id", gpu0)
	restampLogs(ld, at)
	return ld
}

// refusal is the record of refused memory to which cudaoom's own test holds it.
func refusal(t *testing.T, i int, at time.Time, e *engine.Engine) {
	if i != 2 {
		return
	}
	ld, err := golden.ReadLogs("../../../receivers/cudaoomreceiver/testdata/golden/rank_refused.yaml")
	require.NoError(t, err)
	ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).SetTimestamp(pcommon.NewTimestampFromTime(at))
	e.Logs(ld)
}

// slowRank has a job of eight ranks train, of which rank 5, on this node, is slow.
func slowRank(_ *testing.T, i int, at time.Time, e *engine.Engine) { e.Metrics(training(i, at)) }

// training is a step of a job of eight ranks, four of them on this node.
func training(step int, at time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	for rank := range 8 {
		of := md.ResourceMetrics().AppendEmpty()
		of.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank/4))
		m := of.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName("gen_ai.training.step.compute.duration")
		p := m.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetDoubleValue(1 + 0.01*float64((rank+step)%5))
		if rank == 5 && step >= 2 {
			p.SetDoubleValue(1.8 * (1 + 0.01*float64(step%4)))
		}
		p.Attributes().PutStr("gen_ai.training.job_id", "job-1")
		p.Attributes().PutInt("gen_ai.training.rank", int64(rank))
		p.Attributes().PutInt("gen_ai.training.step", int64(100+step))
		p.Attributes().PutInt("gen_ai.training.world_size", 8)
		p.Attributes().PutInt("process.pid", int64(4000+rank))
	}
	return md
}
