package inventory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

var start = time.Unix(1_700_000_000, 0)

func gpu(pci string, change ...func(*protocol.GPU)) protocol.GPU {
	g := protocol.GPU{Identity: device.Identity{PCI: pci, UUID: "GPU-" + pci}, Values: map[device.Quantity]uint64{}}
	for _, c := range change {
		c(&g)
	}
	return g
}

func snapshot(gpus ...protocol.GPU) *protocol.Snapshot { return &protocol.Snapshot{GPUs: gpus} }

func names(gpus []*GPU) []string {
	var names []string
	for _, one := range gpus {
		names = append(names, one.PCI)
	}
	return names
}

func TestAGPUIsLostOnceAndFoundOnce(t *testing.T) {
	dead := func(g *protocol.GPU) { g.Lost = true }
	for name, gone := range map[string]*protocol.Snapshot{
		"says so":                   snapshot(gpu("a", dead), gpu("b")),
		"has no address any more":   snapshot(protocol.GPU{Lost: true}, gpu("b")),
		"is no longer in the count": snapshot(gpu("b")),
	} {
		t.Run(name, func(t *testing.T) {
			c := New(time.Second)
			step := func(s *protocol.Snapshot) (lost, found []string) {
				l, f := c.Update(s, start)
				return names(l), names(f)
			}
			lost, found := step(snapshot(gpu("a"), gpu("b")))
			require.Empty(t, lost)
			require.Empty(t, found)
			lost, _ = step(gone)
			require.Equal(t, []string{"a"}, lost)
			require.Equal(t, []string{"a"}, c.Lost())
			lost, found = step(gone)
			require.Empty(t, lost)
			require.Empty(t, found)
			lost, found = step(snapshot(gpu("a"), gpu("b")))
			require.Empty(t, lost)
			require.Equal(t, []string{"a"}, found)
			require.Empty(t, c.Lost())
		})
	}
}

func TestAGPUThatIsLostWhenFirstMetIsLost(t *testing.T) {
	c := New(time.Second)
	lost, _ := c.Update(snapshot(gpu("a", func(g *protocol.GPU) { g.Lost = true })), start)
	require.Equal(t, []string{"a"}, names(lost))
}

func TestTheInventoryIsBounded(t *testing.T) {
	c := New(time.Second)
	var many []protocol.GPU
	for i := range maxGPUs + 10 {
		many = append(many, gpu(time.Duration(i).String()))
	}
	c.Update(snapshot(many...), start)
	require.Len(t, c.gpus, maxGPUs)
}

func TestRatesAreSummedUp(t *testing.T) {
	busy := gpu("a", func(g *protocol.GPU) {
		g.Values[device.PCIeTransmit], g.Values[device.PCIeReceive] = 2000, 500 // KB/s
		g.Values[device.ThrottleActive] = 0x40
	})
	c := New(10 * time.Second)
	c.Update(snapshot(busy), start)
	one := c.Find("a")
	require.Zero(t, one.PCIeBytes(Transmit), "the first reading has no time behind it")
	c.Update(snapshot(busy), start.Add(10*time.Second))
	require.EqualValues(t, 20_000_000, one.PCIeBytes(Transmit))
	require.EqualValues(t, 5_000_000, one.PCIeBytes(Receive))
	require.Equal(t, map[string]float64{
		"hw_thermal_slowdown": 10, "sw_thermal_slowdown": 0, "sw_power_cap": 0, "sync_boost": 0, "hw_power_brake_slowdown": 0,
	}, one.Throttled())
	c.Update(snapshot(busy), start.Add(time.Hour))
	require.EqualValues(t, 60_000_000, one.PCIeBytes(Transmit), "a gap counts for two intervals at most")
	c.Update(snapshot(busy), start)
	require.EqualValues(t, 60_000_000, one.PCIeBytes(Transmit), "a clock that goes back counts nothing")
}

func TestTheDriversOwnCountersOfThrottlingCount(t *testing.T) {
	counts := func(ns map[string]uint64) protocol.GPU {
		return gpu("a", func(g *protocol.GPU) { g.Throttled, g.Values[device.ThrottleActive] = ns, 0xff })
	}
	c := New(10 * time.Second)
	c.Update(snapshot(counts(map[string]uint64{device.ThermalBoth: 3e9, "sw_power_cap": 5e8})), start)
	c.Update(snapshot(counts(map[string]uint64{device.ThermalBoth: 4e9, "sw_power_cap": 5e8})), start.Add(10*time.Second))
	require.Equal(t, map[string]float64{
		device.ThermalBoth: 4, "sw_power_cap": 0.5, "sync_boost": 10, "hw_power_brake_slowdown": 10,
	}, c.Find("a").Throttled(), "heat that the driver counts is not summed up as well")
	c.Update(snapshot(counts(map[string]uint64{device.ThermalBoth: 4e9})), start.Add(20*time.Second))
	require.NotContains(t, c.Find("a").Throttled(), "sw_power_cap", "a counter does not turn into a sum")
}

func TestTheOwnerIsSureOrNobody(t *testing.T) {
	on := func(pid uint32, instance int) device.Process {
		return device.Process{PID: pid, GPUInstance: instance, ComputeInstance: device.NoInstance}
	}
	for name, tc := range map[string]struct {
		processes []device.Process
		instance  int
		want      uint32
	}{
		"nobody":                 {nil, device.NoInstance, 0},
		"one":                    {[]device.Process{on(7, device.NoInstance)}, device.NoInstance, 7},
		"two":                    {[]device.Process{on(7, device.NoInstance), on(8, device.NoInstance)}, device.NoInstance, 0},
		"three, two of them one": {[]device.Process{on(7, 1), on(8, 1), on(7, 1)}, device.NoInstance, 0},
		"one twice":              {[]device.Process{on(7, 1), on(7, 2)}, device.NoInstance, 7},
		"one of its instance":    {[]device.Process{on(7, 1), on(8, 2)}, 2, 8},
		"nobody of its instance": {[]device.Process{on(7, 1)}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			one := &GPU{Latest: protocol.GPU{Processes: tc.processes}}
			pid, sure := one.Owner(tc.instance, device.NoInstance)
			require.Equal(t, tc.want, pid)
			require.Equal(t, tc.want != 0, sure)
		})
	}
}

func TestAHealthWatchIsToldWhenItChanges(t *testing.T) {
	c := New(time.Second)
	ill := func(incidents ...protocol.Incident) []Finding {
		c.Update(snapshot(gpu("a", func(g *protocol.GPU) { g.Health, g.HealthKnown = incidents, true }), gpu("b")), start)
		return c.Findings()
	}
	warning, failure := protocol.Incident{System: "memory", Text: "1 page"}, protocol.Incident{System: "memory", Failed: true}
	require.Empty(t, ill())
	require.Equal(t, []Finding{{"a", protocol.Incident{System: "memory", Text: "1 page"}}}, ill(warning))
	warning.Text = "2 pages"
	require.Empty(t, ill(warning), "the same, said with other numbers")
	require.Equal(t, []Finding{{"a", failure}}, ill(warning, failure, failure))
	require.Empty(t, ill())
	require.Len(t, ill(warning), 1, "it came back")
	c.Update(snapshot(gpu("a"), gpu("b")), start)
	require.Empty(t, c.Findings())
	require.Empty(t, ill(warning), "NVML, which has no watches, was read for a while")
}

func TestRatesOfLinksAreSummedUp(t *testing.T) {
	busy := gpu("a", func(g *protocol.GPU) {
		g.Links = []protocol.Link{{Number: 3, Values: map[device.LinkQuantity]uint64{device.LinkTransmitRate: 100}}}
	})
	c := New(10 * time.Second)
	c.Update(snapshot(busy), start)
	_, any := c.Find("a").LinkBytes(busy.Links[0], Transmit)
	require.False(t, any, "the first reading has no time behind it")
	c.Update(snapshot(busy), start.Add(10*time.Second))
	sum, _ := c.Find("a").LinkBytes(busy.Links[0], Transmit)
	require.EqualValues(t, 1000, sum)
}

// What one source counts since the driver was loaded the other sums up: neither a
// burst nor a fall may show.
func TestCountersGoOnWhenTheSourceChanges(t *testing.T) {
	through := map[string]protocol.GPU{
		"nvml": gpu("a", func(g *protocol.GPU) {
			g.Links = []protocol.Link{{Number: 3, Values: map[device.LinkQuantity]uint64{device.LinkTransmitKiB: 5 << 30, device.LinkReplay: 7, device.LinkEffective: 100}}}
			g.Throttled = map[string]uint64{"sync_boost": 9e9}
		}),
		"dcgm": gpu("a", func(g *protocol.GPU) {
			g.Links = []protocol.Link{{Number: 3, Values: map[device.LinkQuantity]uint64{device.LinkTransmitRate: 100, device.LinkReplay: 7}}}
			g.Values[device.ThrottleActive] = 0x10
		}),
	}
	c, at := New(10*time.Second), start
	read := func(source string) (bytes, errors, seconds float64) {
		at = at.Add(10 * time.Second)
		now := through[source]
		c.ReadThrough(source)
		c.Update(snapshot(now), at)
		bytes, _ = c.Find("a").LinkBytes(now.Links[0], Transmit)
		return bytes, float64(c.Find("a").LinkErrors()), c.Find("a").Throttled()["sync_boost"]
	}
	read("dcgm")
	bytes, errors, seconds := read("dcgm")
	require.Equal(t, []float64{1000, 7, 10}, []float64{bytes, errors, seconds})
	bytes, errors, seconds = read("nvml")
	require.Equal(t, []float64{1000, 7, 10}, []float64{bytes, errors, seconds}, "no burst")
	through["nvml"].Links[0].Values[device.LinkTransmitKiB]++
	through["nvml"].Links[0].Values[device.LinkEffective]++
	through["nvml"].Throttled["sync_boost"] += 1e9
	bytes, errors, seconds = read("nvml")
	require.Equal(t, []float64{2024, 8, 11}, []float64{bytes, errors, seconds}, "what it counts from now on")
	bytes, errors, _ = read("dcgm")
	require.Equal(t, []float64{3024, 8}, []float64{bytes, errors}, "no fall")
	require.NotContains(t, c.Find("a").Throttled(), "sync_boost", "a counter does not turn into a sum")
	through["nvml"].Links[0].Values[device.LinkTransmitKiB] = 1
	read("nvml")
	through["nvml"].Links[0].Values[device.LinkTransmitKiB] = 0
	bytes, _, _ = read("nvml")
	require.Zero(t, bytes, "the driver was loaded again")
}
