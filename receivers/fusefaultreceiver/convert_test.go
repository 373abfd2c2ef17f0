package fusefaultreceiver

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testHost = record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"}

// convertAll makes records of reports, one Logs for all.
func convertAll(reports []report) plog.Logs {
	c := newConverter(metadata.NewLogsBuilder(metadata.DefaultLogsBuilderConfig(), receivertest.NewNopSettings(metadata.Type)), testHost)
	for i := range reports {
		c.add(&reports[i], start.Add(time.Hour))
	}
	return c.emit()
}

// rankScene is a rank of a pod that reads a dataset, seen in its own container.
func rankScene() *scene {
	s := newScene()
	s.resolver.Know(identity.Process{
		PID: 42, ParentPID: 7, Comm: "python", ContainerID: strings.Repeat("ab", 32), PodUID: "0a1b2c3d-0000-4000-8000-123456789abc",
		Rank: 3, LocalRank: 1, WorldSize: 8, JobID: "llm",
	})
	s.machine.mount("42", data.Minor, procfs.Mount{Point: "/data set", Source: "JuiceFS:vol", Type: "fuse.juicefs"})
	return s
}

func TestGoldenRecords(t *testing.T) {
	for name, reports := range map[string]func() []report{
		"rank_waits_for_a_read": func() []report {
			s := rankScene()
			s.stick(42)
			return s.after(2)
		},
		"rank_waits_for_a_fault_of_a_stopped_daemon": func() []report {
			s := rankScene()
			s.machine.processes[daemonPID] = procfs.Process{Name: "juicefs", State: procfs.Stopped, StartTicks: 5}
			s.stick(42, fault)
			return s.after(2)
		},
		"writeback_with_nobody_waiting": func() []report {
			s := newScene()
			s.stick(42, background, opcode(opWrite))
			return s.after(2)
		},
		"nothing_known": func() []report {
			s := newScene()
			s.stick(0, func(f *fusefault.InFlight) { f.Device.Minor = 99; f.Comm = "" })
			return s.after(2)
		},
		"unmounted_at_last": func() []report {
			s := rankScene()
			s.stick(42)
			s.after(4)
			s.inFlight = nil
			delete(s.machine.mounts["42"], data.Minor)
			return s.after(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			logs := convertAll(reports())
			require.Equal(t, 1, logs.LogRecordCount())
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, logs))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, logs))
		})
	}
}

func TestGoldenMetrics(t *testing.T) {
	s := rankScene()
	s.machine.waiting[data.Minor] = 2
	s.stick(42)
	s.stick(43)
	s.after(2)
	config := metadata.NewDefaultMetricsBuilderConfig()
	m := newMeasurer(metadata.NewMetricsBuilder(config, receivertest.NewNopSettings(metadata.Type), metadata.WithStartTime(1)), testHost, s.machine)
	metrics := m.measure(s.mounts, s.now)
	file := filepath.Join("testdata", "golden", "metrics.yaml")
	if *update {
		require.NoError(t, golden.WriteMetricsToFile(file, metrics))
	}
	want, err := golden.ReadMetrics(file)
	require.NoError(t, err)
	// Golden files hold no times; the histogram's own test has them.
	require.NoError(t, pmetrictest.CompareMetrics(want, metrics, pmetrictest.IgnoreTimestamp(), pmetrictest.IgnoreStartTimestamp()))
}

func TestHistogramHasTheProbesBuckets(t *testing.T) {
	var h fusefault.Histogram
	h.Buckets[0], h.Buckets[1], h.Buckets[10], h.Buckets[27] = 1, 2, 3, 4
	h.SumNS = 1_500_000_000
	m := &measurer{bounds: bounds()}
	to := pmetric.NewHistogramDataPoint()
	m.histogram(to, &mount{device: data, counted: start}, &h, start.Add(time.Second))
	require.Equal(t, len(h.Buckets), to.BucketCounts().Len())
	require.Equal(t, len(h.Buckets)-1, to.ExplicitBounds().Len())
	require.Equal(t, start, to.StartTimestamp().AsTime().In(start.Location()))
	require.Equal(t, start.Add(time.Second), to.Timestamp().AsTime().In(start.Location()))
	require.EqualValues(t, 10, to.Count())
	require.InDelta(t, 1.5, to.Sum(), 1e-9)
	require.InDelta(t, 1e-6, to.ExplicitBounds().At(0), 1e-12, "bucket 0 holds what took less than 1 µs")
	require.InDelta(t, 1024e-6, to.ExplicitBounds().At(10), 1e-12)
	require.InDelta(t, 67.108864, to.ExplicitBounds().At(26), 1e-9)
}

func TestMetricsSwitchedOffLeaveTheHistograms(t *testing.T) {
	s := newScene()
	config := metadata.NewDefaultMetricsBuilderConfig()
	config.Metrics.FuseConnectionWaiting.Enabled = false
	config.Metrics.FuseInFlight.Enabled = false
	config.Metrics.FuseInFlightOldestAge.Enabled = false
	m := newMeasurer(metadata.NewMetricsBuilder(config, receivertest.NewNopSettings(metadata.Type)), testHost, s.machine)
	metrics := m.measure(s.mounts, s.now)
	require.Equal(t, 2, metrics.MetricCount())
	name, _ := metrics.ResourceMetrics().At(0).Resource().Attributes().Get("host.name")
	require.Equal(t, "node-1", name.Str())
	require.Zero(t, m.measure(nil, s.now).ResourceMetrics().Len())
}

func TestOpcodesHaveTheirNames(t *testing.T) {
	for opcode, name := range map[uint32]string{1: "LOOKUP", 3: "GETATTR", 15: "READ", 16: "WRITE", 20: "FSYNC", 25: "FLUSH", 52: "STATX", 0: "0", 7: "7", 99: "99", 4096: "4096"} {
		require.Equal(t, name, opcodeName(opcode))
	}
}
