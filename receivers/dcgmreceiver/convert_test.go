package dcgmreceiver

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

var update = flag.Bool("update", false, "rewrite the golden records")

var start = time.Unix(1_700_000_000, 0)

func newTestConverter(t *testing.T) *gpu.Converter {
	meanings, err := catalogue.Load()
	require.NoError(t, err)
	return newConverter(createDefaultConfig().(*Config), receivertest.NewNopSettings(metadata.Type), meanings,
		record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
}

// whole is a GPU with a value in every place that DCGM fills, each different.
func whole() *wire.Snapshot {
	return &wire.Snapshot{GPUs: []wire.GPU{{
		Identity: nvml.Identity{PCI: first, UUID: "GPU-1", Model: "NVIDIA H100", Serial: "165", VBIOS: "96.00", Computed: "9.0", Index: 3},
		Values: map[nvml.Quantity]uint64{
			nvml.PowerUsage: 650500, nvml.MemoryTotal: 100, nvml.MemoryUsed: 25, nvml.PCIeTransmit: 2000, nvml.NVLinkTransmit: 30, nvml.NVLinkReceive: 40,
			nvml.RetiredCorrected: 1, nvml.RetiredUncorrected: 2, nvml.RetirePending: 1, nvml.RemappedUncorrected: 3, nvml.RecoveryAction: 1,
		},
		Ratios:      map[string]float64{"sm": 0.91, "tensor": 0.62, "sm_occupancy": 0.33},
		Throttled:   map[string]uint64{"hw_thermal_slowdown": 2_500_000_000},
		ECC:         []wire.ECC{{ECCCounter: nvml.ECCCounter{Type: "uncorrected", Lifetime: "volatile", Location: "all"}, Count: 7}},
		Links:       []wire.Link{{Number: 3, Values: map[nvml.LinkQuantity]uint64{nvml.LinkState: 1, nvml.LinkTransmitRate: 50, nvml.LinkCRCFlit: 5}}},
		HealthKnown: true, Health: []wire.Incident{{System: "memory", Failed: true}, {System: "memory"}, {System: "thermal"}},
	}}}
}

func TestGoldenMetrics(t *testing.T) {
	known := gpu.NewCards(10 * time.Second)
	known.Update(whole(), start.Add(-10*time.Second))
	known.Update(whole(), start)
	got := newTestConverter(t).Readings(known, "580.65.06", start)
	file := filepath.Join("testdata", "metrics.yaml")
	if *update {
		require.NoError(t, golden.WriteMetricsToFile(file, got))
	}
	want, err := golden.ReadMetrics(file)
	require.NoError(t, err)
	require.NoError(t, pmetrictest.CompareMetrics(want, got, pmetrictest.IgnoreStartTimestamp(), pmetrictest.IgnoreTimestamp(),
		pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))
}

func TestGoldenRecords(t *testing.T) {
	known := gpu.NewCards(10 * time.Second)
	known.Update(whole(), start)
	event := func(kind, data uint64) wire.Event {
		return wire.Event{Event: nvml.Event{PCI: first, Type: kind, Data: data, GPUInstance: nvml.NoInstance, ComputeInstance: nvml.NoInstance}}
	}
	violated := event(wire.EventPolicy, 0)
	violated.Kind, violated.Text = "nvlink", "7 errors in field 409"
	told := func(e wire.Event) gpu.Fault {
		f, sound := newTestConverter(t).Fault(&e, known)
		require.True(t, sound)
		return f
	}
	for name, f := range map[string]gpu.Fault{
		"xid": told(event(nvml.EventXid, 79)), "ecc": told(event(nvml.EventECCUncorrected, 0)), "policy_violation": told(violated),
		"lost": {PCI: first, Event: gpu.EventLost}, "recovered": {PCI: first, Event: gpu.EventRecovered},
		"health_warns": {PCI: first, Event: gpu.EventHealth, Kind: "thermal", Text: "it is hot"},
		"health_fails": {PCI: first, Event: gpu.EventHealth, Kind: "memory", Failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := gpu.NewFaults("dcgm", time.Second).Add(f, start)
			got := newTestConverter(t).Faults([]*gpu.Storm{s}, known, start.Add(time.Second))
			file := filepath.Join("testdata", "golden", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, golden.WriteLogsToFile(file, got))
			}
			want, err := golden.ReadLogs(file)
			require.NoError(t, err)
			require.NoError(t, plogtest.CompareLogs(want, got))
		})
	}
}

func TestAnApplicationsXidIsLeftToTheKernelLog(t *testing.T) {
	known := gpu.NewCards(10 * time.Second)
	known.Update(whole(), start)
	_, sound := newTestConverter(t).Fault(&wire.Event{Event: nvml.Event{PCI: first, Type: nvml.EventXid, Data: 13}}, known)
	require.False(t, sound)
}

// declared is what both receivers have of a metric or an event.
type declared struct {
	Unit       string   `yaml:"unit"`
	Sum, Gauge any      `yaml:",omitempty"`
	Attributes []string `yaml:"attributes"`
}

// Patterns and queries must not care which of the two receivers runs.
func TestMetricsThatBothReceiversHaveAreTheSame(t *testing.T) {
	read := func(path string) (all map[string]declared) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var file struct{ Metrics map[string]declared }
		require.NoError(t, yaml.Unmarshal(text, &file))
		return file.Metrics
	}
	ours, same := read("metadata.yaml"), 0
	for name, theirs := range read("../nvmlreceiver/metadata.yaml") {
		if mine, both := ours[name]; both {
			require.Equal(t, theirs, mine, name)
			same++
			continue
		}
		require.Contains(t, []string{"hw.gpu.mig.memory.limit", "hw.gpu.mig.memory.usage", "hw.gpu.process.memory.usage"}, name, "DCGM gives no such number")
	}
	require.Greater(t, same, 25)
}
