package nvmlreceiver

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
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

var update = flag.Bool("update", false, "rewrite the golden records")

// fakeResolver knows one rank.
type fakeResolver struct {
	component.StartFunc
	component.ShutdownFunc
}

func (fakeResolver) Lookup(pid, _ uint32, _ time.Time) (identity.Process, bool) {
	return identity.Process{
		PID: pid, ParentPID: 7, Comm: "python3", ContainerID: "c0ffee", PodUID: "u-1", Rank: 3, LocalRank: 3, WorldSize: 8, JobID: "job-1",
	}, pid == 4711
}
func (fakeResolver) Exits(func(identity.Exit)) func() { return func() {} }
func (fakeResolver) Ranks() []identity.Process        { return nil }

func newTestConverter(t *testing.T) *gpu.Converter {
	meanings, err := catalogue.Load()
	require.NoError(t, err)
	config := createDefaultConfig().(*Config)
	config.Events.GpuClockChange.Enabled = true
	c := newConverter(config, receivertest.NewNopSettings(metadata.Type), meanings, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
	c.Resolver = fakeResolver{}
	return c
}

var start = time.Unix(1_700_000_000, 0)

func device(pci string, change ...func(*wire.GPU)) wire.GPU {
	g := wire.GPU{Identity: nvml.Identity{PCI: pci, UUID: "GPU-" + pci}, Values: map[nvml.Quantity]uint64{}}
	for _, c := range change {
		c(&g)
	}
	return g
}

func snapshot(gpus ...wire.GPU) *wire.Snapshot { return &wire.Snapshot{GPUs: gpus} }

// whole is a GPU with a value in every place, each different.
func whole(pid uint32) wire.GPU {
	g := device("0000:1a:00.0", func(g *wire.GPU) {
		g.Model, g.Serial, g.VBIOS, g.Computed, g.MIGMode = "NVIDIA H100", "165", "96.00", "9.0", true
		n := uint64(1)
		for _, q := range nvml.Called() {
			g.Values[q], n = n, n+1
		}
		for _, q := range nvml.GPUFields() {
			g.Values[q] = 2
		}
		g.Throttled = map[string]uint64{"hw_thermal_slowdown": 2_500_000_000}
		for i, counter := range nvml.ECCCounters() {
			g.ECC = append(g.ECC, wire.ECC{ECCCounter: counter, Count: uint64(100 + i)})
		}
		g.Links = []wire.Link{
			{Number: 0, Values: map[nvml.LinkQuantity]uint64{nvml.LinkState: 1, nvml.LinkTransmitKiB: 3, nvml.LinkReceiveKiB: 4, nvml.LinkCRCFlit: 5}},
			{Number: 1, Values: map[nvml.LinkQuantity]uint64{nvml.LinkState: 0, nvml.LinkTransmit: 3, nvml.LinkReceive: 4, nvml.LinkEffective: 6}},
		}
		g.MIG = []nvml.MIG{{UUID: "MIG-1", GPUInstance: 1, ComputeInstance: 0, MemoryTotal: 20, MemoryUsed: 10}}
		g.Processes = []nvml.Process{{PID: pid, UsedMemory: 77, MemoryKnown: true, GPUInstance: 1, ComputeInstance: 0}, {PID: pid}}
	})
	return g
}

func TestGoldenMetrics(t *testing.T) {
	c := newTestConverter(t)
	known := gpu.NewCards(10 * time.Second)
	lost := device("0000:2a:00.0")
	known.Update(snapshot(whole(4711), lost), start.Add(-10*time.Second))
	lost.Lost = true
	known.Update(snapshot(whole(4711), lost), start)
	got := c.Readings(known, "580.65.06", start)
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
	known.Update(snapshot(whole(4711)), start)
	event := func(kind, data uint64) *wire.Event {
		return &wire.Event{Event: nvml.Event{PCI: "0000:1a:00.0", Type: kind, Data: data, GPUInstance: nvml.NoInstance, ComputeInstance: nvml.NoInstance}}
	}
	inMIG := event(nvml.EventXid, 94)
	inMIG.GPUInstance, inMIG.ComputeInstance = 1, 0
	for name, tc := range map[string]struct {
		event  *wire.Event
		fault  gpu.Fault
		repeat bool
	}{
		"xid":             {event: event(nvml.EventXid, 95)},
		"xid_in_mig":      {event: inMIG},
		"xid_nobody_knew": {event: event(nvml.EventXid, 9999)},
		"xid_repeats":     {event: event(nvml.EventXid, 95), repeat: true},
		"ecc_corrected":   {event: event(nvml.EventECCCorrected, 0)},
		"ecc_uncorrected": {event: event(nvml.EventECCUncorrected, 0)},
		"clock_change":    {event: event(nvml.EventClock, 0)},
		"lost":            {fault: gpu.Fault{PCI: "0000:1a:00.0", Event: gpu.EventLost}},
		"recovered":       {fault: gpu.Fault{PCI: "0000:1a:00.0", Event: gpu.EventRecovered}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := newTestConverter(t), tc.fault
			if tc.event != nil {
				var sound bool
				f, sound = c.Fault(tc.event, known)
				require.True(t, sound)
			}
			s, _ := gpu.NewFaults("nvml", time.Second).Add(f, start)
			if tc.repeat {
				s.Told, s.Count, s.Last = 1, 5, start.Add(4*time.Second)
			}
			got := c.Faults([]*gpu.Storm{s}, known, start.Add(5*time.Second))
			require.Equal(t, s.Count, s.Told)
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

func TestEventsThatBlameNobodyAreNotTold(t *testing.T) {
	known := gpu.NewCards(10 * time.Second)
	alone, shared := device("a"), device("b")
	alone.Processes = []nvml.Process{{PID: 1}}
	shared.Processes = []nvml.Process{{PID: 1}, {PID: 2}}
	known.Update(snapshot(alone, shared), start)
	for name, tc := range map[string]struct {
		event nvml.Event
		told  bool
	}{
		"no GPU":                        {nvml.Event{Type: nvml.EventXid, Data: 95}, false},
		"a GPU that nobody knows":       {nvml.Event{PCI: "c", Type: nvml.EventXid, Data: 95}, false},
		"a type that nobody knows":      {nvml.Event{PCI: "a", Type: 1 << 40}, false},
		"an application's, one process": {nvml.Event{PCI: "a", Type: nvml.EventXid, Data: 13}, true},
		"an application's, two":         {nvml.Event{PCI: "b", Type: nvml.EventXid, Data: 13}, false},
		"the GPU's, two":                {nvml.Event{PCI: "b", Type: nvml.EventXid, Data: 79}, true},
		"beyond all codes":              {nvml.Event{PCI: "b", Type: nvml.EventXid, Data: 1<<64 - 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.event.GPUInstance, tc.event.ComputeInstance = nvml.NoInstance, nvml.NoInstance
			_, told := newTestConverter(t).Fault(&wire.Event{Event: tc.event}, known)
			require.Equal(t, tc.told, told)
		})
	}
}

func TestDisabledEventsAreNotMade(t *testing.T) {
	c := newTestConverter(t)
	c.Events[gpu.EventXid] = false
	s, _ := gpu.NewFaults("nvml", time.Second).Add(gpu.Fault{PCI: "a", Event: gpu.EventXid, XID: 95}, start)
	require.Zero(t, c.Faults([]*gpu.Storm{s}, gpu.NewCards(time.Second), start).LogRecordCount())
}
