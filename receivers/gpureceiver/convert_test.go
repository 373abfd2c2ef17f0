package gpureceiver

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
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/storm"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
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

func newTestConverter(t *testing.T, change ...func(*Config)) *converter {
	meanings, err := catalogue.Load()
	require.NoError(t, err)
	config := createDefaultConfig().(*Config)
	config.Events.GpuClockChange.Enabled = true
	for _, f := range change {
		f(config)
	}
	c := newConverter(config, receivertest.NewNopSettings(metadata.Type), meanings, record.Host{Name: "node-1", ID: "0123456789abcdef0123456789abcdef", NodeName: "node-1"})
	c.resolver = fakeResolver{}
	return c
}

var start = time.Unix(1_700_000_000, 0)

func at(pci string, change ...func(*protocol.GPU)) protocol.GPU {
	g := protocol.GPU{Identity: device.Identity{PCI: pci, UUID: "GPU-" + pci}, Values: map[device.Quantity]uint64{}}
	for _, c := range change {
		c(&g)
	}
	return g
}

func snapshot(gpus ...protocol.GPU) *protocol.Snapshot { return &protocol.Snapshot{GPUs: gpus} }

// whole is a GPU with a value in every place that NVML fills, each different.
func whole(pid uint32) protocol.GPU {
	g := at("0000:1a:00.0", func(g *protocol.GPU) {
		g.Model, g.Serial, g.VBIOS, g.Computed, g.MIGMode = "NVIDIA H100", "165", "96.00", "9.0", true
		n := uint64(1)
		for _, q := range nvml.Called() {
			g.Values[q], n = n, n+1
		}
		for _, q := range nvml.GPUFields() {
			g.Values[q] = 2
		}
		g.Throttled = map[string]uint64{"hw_thermal_slowdown": 2_500_000_000}
		for i, counter := range device.ECCCounters() {
			g.ECC = append(g.ECC, protocol.ECC{ECCCounter: counter, Count: uint64(100 + i)})
		}
		g.Links = []protocol.Link{
			{Number: 0, Values: map[device.LinkQuantity]uint64{device.LinkState: 1, device.LinkTransmitKiB: 3, device.LinkReceiveKiB: 4, device.LinkCRCFlit: 5}},
			{Number: 1, Values: map[device.LinkQuantity]uint64{device.LinkState: 0, device.LinkTransmit: 3, device.LinkReceive: 4, device.LinkEffective: 6}},
		}
		g.MIG = []device.MIG{{UUID: "MIG-1", GPUInstance: 1, ComputeInstance: 0, MemoryTotal: 20, MemoryUsed: 10}}
		g.Processes = []device.Process{{PID: pid, UsedMemory: 77, MemoryKnown: true, GPUInstance: 1, ComputeInstance: 0}, {PID: pid}}
	})
	return g
}

// wholeByDCGM is a GPU with a value in every place that DCGM fills, each different.
func wholeByDCGM() *protocol.Snapshot {
	return &protocol.Snapshot{GPUs: []protocol.GPU{{
		Identity: device.Identity{PCI: first, UUID: "GPU-1", Model: "NVIDIA H100", Serial: "165", VBIOS: "96.00", Computed: "9.0", Index: 3},
		Values: map[device.Quantity]uint64{
			device.PowerUsage: 650500, device.MemoryTotal: 100, device.MemoryUsed: 25, device.PCIeTransmit: 2000, device.NVLinkTransmit: 30, device.NVLinkReceive: 40,
			device.RetiredCorrected: 1, device.RetiredUncorrected: 2, device.RetirePending: 1, device.RemappedUncorrected: 3, device.RecoveryAction: 1,
		},
		Ratios:      map[string]float64{"sm": 0.91, "tensor": 0.62, "sm_occupancy": 0.33},
		Throttled:   map[string]uint64{"hw_thermal_slowdown": 2_500_000_000},
		ECC:         []protocol.ECC{{ECCCounter: device.ECCCounter{Type: "uncorrected", Lifetime: "volatile", Location: "all"}, Count: 7}},
		Links:       []protocol.Link{{Number: 3, Values: map[device.LinkQuantity]uint64{device.LinkState: 1, device.LinkTransmitRate: 50, device.LinkCRCFlit: 5}}},
		HealthKnown: true, Health: []protocol.Incident{{System: "memory", Failed: true}, {System: "memory"}, {System: "thermal"}},
	}}}
}

func TestGoldenMetrics(t *testing.T) {
	lost := at("0000:2a:00.0")
	before := snapshot(whole(4711), lost)
	lost.Lost = true
	for source, readings := range map[string][2]*protocol.Snapshot{
		"nvml": {before, snapshot(whole(4711), lost)},
		"dcgm": {wholeByDCGM(), wholeByDCGM()},
	} {
		t.Run(source, func(t *testing.T) {
			known := inventory.New(10 * time.Second)
			known.Update(readings[0], start.Add(-10*time.Second))
			known.Update(readings[1], start)
			got := newTestConverter(t).readings(known, "580.65.06", start)
			file := filepath.Join("testdata", "golden", "metrics_"+source+".yaml")
			if *update {
				require.NoError(t, golden.WriteMetricsToFile(file, got))
			}
			want, err := golden.ReadMetrics(file)
			require.NoError(t, err)
			require.NoError(t, pmetrictest.CompareMetrics(want, got, pmetrictest.IgnoreStartTimestamp(), pmetrictest.IgnoreTimestamp(),
				pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder()))
		})
	}
}

func TestGoldenRecords(t *testing.T) {
	known := inventory.New(10 * time.Second)
	known.Update(snapshot(whole(4711)), start)
	event := func(kind, data uint64) *protocol.Event {
		return &protocol.Event{Event: device.Event{PCI: "0000:1a:00.0", Type: kind, Data: data, GPUInstance: device.NoInstance, ComputeInstance: device.NoInstance}}
	}
	violated := event(protocol.EventPolicy, 0)
	violated.Kind, violated.Text = "nvlink", "7 errors in field 409"
	inMIG := event(device.EventXid, 94)
	inMIG.GPUInstance, inMIG.ComputeInstance = 1, 0
	for name, tc := range map[string]struct {
		event  *protocol.Event
		fault  storm.Fault
		repeat bool
	}{
		"xid":              {event: event(device.EventXid, 95)},
		"xid_in_mig":       {event: inMIG},
		"xid_nobody_knew":  {event: event(device.EventXid, 9999)},
		"xid_repeats":      {event: event(device.EventXid, 95), repeat: true},
		"ecc_corrected":    {event: event(device.EventECCCorrected, 0)},
		"ecc_uncorrected":  {event: event(device.EventECCUncorrected, 0)},
		"clock_change":     {event: event(device.EventClock, 0)},
		"lost":             {fault: storm.Fault{PCI: "0000:1a:00.0", Event: storm.Lost}},
		"recovered":        {fault: storm.Fault{PCI: "0000:1a:00.0", Event: storm.Recovered}},
		"policy_violation": {event: violated},
		"health_warns":     {fault: storm.Fault{PCI: "0000:1a:00.0", Event: storm.Health, Kind: "thermal", Text: "it is hot"}},
		"health_fails":     {fault: storm.Fault{PCI: "0000:1a:00.0", Event: storm.Health, Kind: "memory", Failed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := newTestConverter(t), tc.fault
			if tc.event != nil {
				var sound bool
				f, sound = c.fault(tc.event, known)
				require.True(t, sound)
			}
			s := storm.New("gpu", time.Second).Add(f, start)[0]
			if tc.repeat {
				s.Told, s.Count, s.Last = 1, 5, start.Add(4*time.Second)
			}
			got := c.faults([]*storm.Storm{s}, known, start.Add(5*time.Second))
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
	known := inventory.New(10 * time.Second)
	alone, shared := at("a"), at("b")
	alone.Processes = []device.Process{{PID: 1}}
	shared.Processes = []device.Process{{PID: 1}, {PID: 2}}
	known.Update(snapshot(alone, shared), start)
	for name, tc := range map[string]struct {
		event device.Event
		told  bool
	}{
		"no GPU":                        {device.Event{Type: device.EventXid, Data: 95}, false},
		"a GPU that nobody knows":       {device.Event{PCI: "c", Type: device.EventXid, Data: 95}, false},
		"a type that nobody knows":      {device.Event{PCI: "a", Type: 1 << 40}, false},
		"an application's, one process": {device.Event{PCI: "a", Type: device.EventXid, Data: 13}, true},
		"an application's, two":         {device.Event{PCI: "b", Type: device.EventXid, Data: 13}, false},
		"the GPU's, two":                {device.Event{PCI: "b", Type: device.EventXid, Data: 79}, true},
		"beyond all codes":              {device.Event{PCI: "b", Type: device.EventXid, Data: 1<<64 - 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.event.GPUInstance, tc.event.ComputeInstance = device.NoInstance, device.NoInstance
			_, told := newTestConverter(t).fault(&protocol.Event{Event: tc.event}, known)
			require.Equal(t, tc.told, told)
		})
	}
}

func TestDisabledEventsAreNotMade(t *testing.T) {
	c := newTestConverter(t, func(c *Config) { c.Events.GpuXid.Enabled = false })
	s := storm.New("gpu", time.Second)
	add := func(f storm.Fault) *storm.Storm { return s.Add(f, start)[0] }
	xid := add(storm.Fault{PCI: "a", Event: storm.Xid, XID: 95})
	lost, recovered := add(storm.Fault{PCI: "a", Event: storm.Lost}), add(storm.Fault{PCI: "a", Event: storm.Recovered})
	made := c.faults([]*storm.Storm{xid, recovered, lost}, inventory.New(time.Second), start)
	require.Equal(t, 2, made.LogRecordCount())
	require.Equal(t, storm.Recovered, made.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).EventName(), "in the order of the storms")
	require.Equal(t, storm.Lost, made.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(1).EventName())
	require.Equal(t, 1, xid.Told)
}
