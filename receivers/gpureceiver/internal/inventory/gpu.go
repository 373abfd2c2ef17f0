package inventory

import (
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// GPU is what is known of one.
type GPU struct {
	device.Identity
	Lost   bool
	Latest protocol.GPU // the last reading

	read       time.Time    // when that was
	traffic    meters[flow] // bytes
	linkErrors meters[string]
	ill        map[protocol.Incident]bool // without their texts
	throttled  meters[string]             // seconds by reason
	counted    map[string]bool            // reasons that the driver counts
}

// Direction of traffic, as the GPU sees it.
type Direction string

// The directions.
const (
	Transmit Direction = "transmit"
	Receive  Direction = "receive"
)

// flow is one direction over a link, or over what is no link.
type flow struct {
	link      int
	direction Direction
}

// What traffic goes over beside a link.
const (
	allLinks = -1
	pcie     = -2
)

// take takes a reading and sums up what the library gives as rates. A gap counts
// for no more than most.
func (g *GPU) take(now *protocol.GPU, at time.Time, most time.Duration) {
	passed, first := max(0, min(at.Sub(g.read), most)), g.read.IsZero()
	if first {
		passed = 0
	}
	rate := func(over int, direction Direction, perSecond float64, there bool) {
		if there && !first {
			g.traffic.of(flow{over, direction}).add(perSecond * passed.Seconds())
		}
	}
	transmit, there := now.Values[device.PCIeTransmit]
	rate(pcie, Transmit, float64(transmit)*1000, there)
	receive, there := now.Values[device.PCIeReceive]
	rate(pcie, Receive, float64(receive)*1000, there)
	transmit, there = now.Values[device.NVLinkTransmit]
	rate(allLinks, Transmit, float64(transmit), there)
	receive, there = now.Values[device.NVLinkReceive]
	rate(allLinks, Receive, float64(receive), there)
	for _, link := range now.Links {
		g.takeLink(link, rate)
	}
	g.takeLinkErrors(now.Links)
	g.takeThrottled(now, passed)
	g.read, g.Latest = at, *now
}

// counts are the quantities of a link that say the bytes of a direction.
type counts struct{ bytes, kibi, rate device.LinkQuantity }

func (d Direction) counts() counts {
	if d == Transmit {
		return counts{device.LinkTransmit, device.LinkTransmitKiB, device.LinkTransmitRate}
	}
	return counts{device.LinkReceive, device.LinkReceiveKiB, device.LinkReceiveRate}
}

// takeLink takes the bytes over a link: as the driver counts them, in KiB before
// NVLink 5, else as a rate.
func (g *GPU) takeLink(link protocol.Link, rate func(int, Direction, float64, bool)) {
	for _, direction := range []Direction{Transmit, Receive} {
		q := direction.counts()
		bytes, counted := link.Values[q.bytes]
		if kibi, there := link.Values[q.kibi]; there && !counted {
			bytes, counted = kibi<<10, true
		}
		if counted {
			g.traffic.of(flow{link.Number, direction}).count(float64(bytes))
			continue
		}
		perSecond, there := link.Values[q.rate]
		rate(link.Number, direction, float64(perSecond), there)
	}
}

// LinkBytes are the bytes over a link of the last reading.
func (g *GPU) LinkBytes(link protocol.Link, direction Direction) (bytes float64, any bool) {
	q := direction.counts()
	for _, quantity := range []device.LinkQuantity{q.bytes, q.kibi, q.rate} {
		if _, there := link.Values[quantity]; there {
			return g.traffic.total(flow{link.Number, direction})
		}
	}
	return 0, false
}

// NVLinkBytes are the bytes over all links together, where the source says them.
func (g *GPU) NVLinkBytes(direction Direction) (bytes float64, any bool) {
	rate := device.NVLinkTransmit
	if direction == Receive {
		rate = device.NVLinkReceive
	}
	if _, there := g.Latest.Values[rate]; !there {
		return 0, false
	}
	return g.traffic.total(flow{allLinks, direction})
}

// PCIeBytes are the bytes over PCIe since the first reading.
func (g *GPU) PCIeBytes(direction Direction) float64 {
	bytes, _ := g.traffic.total(flow{pcie, direction})
	return bytes
}

// takeLinkErrors adds up the errors of all links. The sources know different kinds.
func (g *GPU) takeLinkErrors(links []protocol.Link) {
	sum, any := uint64(0), false
	for _, link := range links {
		for _, kind := range device.LinkErrorKinds() {
			n, there := link.Values[kind]
			sum, any = sum+n, any || there
		}
	}
	if any {
		g.linkErrors.of(together).count(float64(sum))
	}
}

// together is the meter of all links.
const together = "nvlink"

// LinkErrors are the errors of all links together.
func (g *GPU) LinkErrors() int64 {
	n, _ := g.linkErrors.total(together)
	return int64(n)
}

// takeThrottled takes how long each reason held the clocks down: as the driver
// counts, and where it does not, summed up from what holds them down at each reading.
func (g *GPU) takeThrottled(now *protocol.GPU, passed time.Duration) {
	for reason, ns := range now.Throttled {
		g.counted[reason] = true
		g.throttled.of(reason).count(float64(ns) / 1e9)
	}
	for _, reason := range g.sampled(now) {
		held := time.Duration(0)
		if now.Values[device.ThrottleActive]&reason.Bit != 0 {
			held = passed
		}
		g.throttled.of(reason.Name).add(held.Seconds())
	}
}

// sampled are the reasons that are known from samples alone. Heat that the driver
// counts is not summed up as well, and a counter does not turn into a sum.
func (g *GPU) sampled(now *protocol.GPU) (reasons []device.ThrottleReason) {
	_, heat := now.Throttled[device.ThermalBoth]
	if _, any := now.Values[device.ThrottleActive]; !any {
		return nil
	}
	for _, reason := range device.ThrottleReasons() {
		thermal := reason.Name == device.ThermalSoftware || reason.Name == device.ThermalHardware
		if reason.Bit != 0 && !g.counted[reason.Name] && !(heat && thermal) {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// Throttled is how many seconds each reason held the clocks down.
func (g *GPU) Throttled() map[string]float64 {
	seconds := map[string]float64{}
	for reason := range g.Latest.Throttled {
		seconds[reason], _ = g.throttled.total(reason)
	}
	for _, reason := range g.sampled(&g.Latest) {
		seconds[reason.Name], _ = g.throttled.total(reason.Name)
	}
	return seconds
}

// Owner is the one process on the GPU or, of an event of MIG, on that instance.
func (g *GPU) Owner(gpuInstance, computeInstance int) (pid uint32, sure bool) {
	for _, p := range g.Latest.Processes {
		if gpuInstance != device.NoInstance && p.GPUInstance != gpuInstance ||
			computeInstance != device.NoInstance && p.ComputeInstance != computeInstance || p.PID == pid {
			continue
		}
		if pid != 0 {
			return 0, false
		}
		pid = p.PID
	}
	return pid, pid != 0
}
