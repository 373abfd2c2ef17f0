package gpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

var start = time.Unix(1_700_000_000, 0)

func gpu(pci string, change ...func(*wire.GPU)) wire.GPU {
	g := wire.GPU{Identity: nvml.Identity{PCI: pci, UUID: "GPU-" + pci}, Values: map[nvml.Quantity]uint64{}}
	for _, c := range change {
		c(&g)
	}
	return g
}

func snapshot(gpus ...wire.GPU) *wire.Snapshot { return &wire.Snapshot{GPUs: gpus} }

func names(cards []*Card) []string {
	var names []string
	for _, one := range cards {
		names = append(names, one.PCI)
	}
	return names
}

func TestAGPUIsLostOnceAndFoundOnce(t *testing.T) {
	dead := func(g *wire.GPU) { g.Lost = true }
	for name, gone := range map[string]*wire.Snapshot{
		"says so":                   snapshot(gpu("a", dead), gpu("b")),
		"has no address any more":   snapshot(wire.GPU{Lost: true}, gpu("b")),
		"is no longer in the count": snapshot(gpu("b")),
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCards(time.Second)
			step := func(s *wire.Snapshot) (lost, found []string) {
				l, f := c.Update(s, start)
				return names(l), names(f)
			}
			lost, found := step(snapshot(gpu("a"), gpu("b")))
			require.Empty(t, lost)
			require.Empty(t, found)
			lost, _ = step(gone)
			require.Equal(t, []string{"a"}, lost)
			require.Equal(t, []string{"a"}, c.lost())
			lost, found = step(gone)
			require.Empty(t, lost)
			require.Empty(t, found)
			lost, found = step(snapshot(gpu("a"), gpu("b")))
			require.Empty(t, lost)
			require.Equal(t, []string{"a"}, found)
			require.Empty(t, c.lost())
		})
	}
}

func TestAGPUThatIsLostWhenFirstMetIsLost(t *testing.T) {
	c := NewCards(time.Second)
	lost, _ := c.Update(snapshot(gpu("a", func(g *wire.GPU) { g.Lost = true })), start)
	require.Equal(t, []string{"a"}, names(lost))
}

func TestCardsAreBounded(t *testing.T) {
	c := NewCards(time.Second)
	var many []wire.GPU
	for i := range maxCards + 10 {
		many = append(many, gpu(time.Duration(i).String()))
	}
	c.Update(snapshot(many...), start)
	require.Len(t, c.all, maxCards)
}

func TestRatesAreSummedUp(t *testing.T) {
	busy := gpu("a", func(g *wire.GPU) {
		g.Values[nvml.PCIeTransmit], g.Values[nvml.PCIeReceive] = 2000, 500 // KB/s
		g.Values[nvml.ThrottleActive] = 0x40
	})
	c := NewCards(10 * time.Second)
	c.Update(snapshot(busy), start)
	one := c.Find("a")
	require.Zero(t, one.sent, "the first reading has no time behind it")
	c.Update(snapshot(busy), start.Add(10*time.Second))
	require.EqualValues(t, 20_000_000, one.sent)
	require.EqualValues(t, 5_000_000, one.received)
	require.Equal(t, map[string]float64{
		"hw_thermal_slowdown": 10, "sw_thermal_slowdown": 0, "sw_power_cap": 0, "sync_boost": 0, "hw_power_brake_slowdown": 0,
	}, one.slowed())
	c.Update(snapshot(busy), start.Add(time.Hour))
	require.EqualValues(t, 60_000_000, one.sent, "a gap counts for two intervals at most")
	c.Update(snapshot(busy), start)
	require.EqualValues(t, 60_000_000, one.sent, "a clock that goes back counts nothing")
}

func TestTheDriversOwnCountersOfThrottlingCount(t *testing.T) {
	counts := func(ns map[string]uint64) wire.GPU {
		return gpu("a", func(g *wire.GPU) { g.Throttled, g.Values[nvml.ThrottleActive] = ns, 0xff })
	}
	c := NewCards(10 * time.Second)
	c.Update(snapshot(counts(map[string]uint64{nvml.ThermalBoth: 3e9, "sw_power_cap": 5e8})), start)
	c.Update(snapshot(counts(map[string]uint64{nvml.ThermalBoth: 4e9, "sw_power_cap": 5e8})), start.Add(10*time.Second))
	require.Equal(t, map[string]float64{
		nvml.ThermalBoth: 4, "sw_power_cap": 0.5, "sync_boost": 10, "hw_power_brake_slowdown": 10,
	}, c.Find("a").slowed(), "heat that the driver counts is not summed up as well")
	c.Update(snapshot(counts(map[string]uint64{nvml.ThermalBoth: 4e9})), start.Add(20*time.Second))
	require.NotContains(t, c.Find("a").slowed(), "sw_power_cap", "a counter does not turn into a sum")
}

func TestTheOwnerIsSureOrNobody(t *testing.T) {
	on := func(pid uint32, instance int) nvml.Process {
		return nvml.Process{PID: pid, GPUInstance: instance, ComputeInstance: nvml.NoInstance}
	}
	for name, tc := range map[string]struct {
		processes []nvml.Process
		instance  int
		want      uint32
	}{
		"nobody":                 {nil, nvml.NoInstance, 0},
		"one":                    {[]nvml.Process{on(7, nvml.NoInstance)}, nvml.NoInstance, 7},
		"two":                    {[]nvml.Process{on(7, nvml.NoInstance), on(8, nvml.NoInstance)}, nvml.NoInstance, 0},
		"three, two of them one": {[]nvml.Process{on(7, 1), on(8, 1), on(7, 1)}, nvml.NoInstance, 0},
		"one twice":              {[]nvml.Process{on(7, 1), on(7, 2)}, nvml.NoInstance, 7},
		"one of its instance":    {[]nvml.Process{on(7, 1), on(8, 2)}, 2, 8},
		"nobody of its instance": {[]nvml.Process{on(7, 1)}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			one := &Card{now: wire.GPU{Processes: tc.processes}}
			pid, sure := one.owner(tc.instance, nvml.NoInstance)
			require.Equal(t, tc.want, pid)
			require.Equal(t, tc.want != 0, sure)
		})
	}
}

func TestAStormIsToldOnceThenWithItsCount(t *testing.T) {
	f := NewFaults("nvml", 10*time.Second)
	one := Fault{PCI: "a", Event: EventXid, XID: 94}
	first, now := f.Add(one, start)
	require.True(t, now)
	first.Told = first.Count
	for i := range 1000 {
		_, now = f.Add(one, start.Add(time.Duration(i)*time.Millisecond))
		require.False(t, now)
	}
	_, now = f.Add(Fault{PCI: "a", Event: EventXid, XID: 95}, start)
	require.True(t, now, "another Xid is another fault")
	tell := f.Expire(start.Add(5 * time.Second))
	require.Equal(t, 1001, tell[0].Count)
	require.Equal(t, first.ID, tell[0].ID)
	tell[0].Told = tell[0].Count
	for _, s := range tell {
		s.Told = s.Count
	}
	require.Empty(t, f.Expire(start.Add(20*time.Second)))
	_, now = f.Add(one, start.Add(21*time.Second))
	require.True(t, now, "quiet for an interval, the next is a new storm")
}

func TestStormsAreBounded(t *testing.T) {
	f := NewFaults("nvml", time.Second)
	for i := range uint64(maxStorms + 100) {
		_, now := f.Add(Fault{XID: i}, start)
		require.True(t, now)
	}
	require.Len(t, f.open, maxStorms)
}
