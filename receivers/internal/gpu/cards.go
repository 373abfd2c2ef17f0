package gpu

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

// maxCards bounds what is remembered of GPUs that come and go.
const maxCards = 64

// Cards are the GPUs, and what has to be remembered of them from one helper to
// the next: a new connection does not show one that is lost.
type Cards struct {
	interval time.Duration
	all      []*Card // in the order of their addresses
}

// Card is one GPU.
type Card struct {
	nvml.Identity
	gone      bool
	read      time.Time // when it was last read
	now       wire.GPU  // as it was then
	sent      float64   // bytes over PCIe, summed up
	received  float64
	links     map[linkFlow]float64     // bytes over NVLink, summed up where the library has a rate
	ill       map[wire.Incident]bool   // without their texts
	throttled map[string]time.Duration // by reasons that the driver does not count
	counted   map[string]bool          // reasons that the driver counts
}

// NewCards remembers GPUs that are read once in an interval.
func NewCards(interval time.Duration) *Cards { return &Cards{interval: interval} }

// Find returns the GPU at an address.
func (c *Cards) Find(pci string) *Card {
	for _, one := range c.all {
		if one.PCI == pci {
			return one
		}
	}
	return nil
}

// lost lists the addresses of those that do not answer.
func (c *Cards) lost() []string {
	var names []string
	for _, one := range c.all {
		if one.gone {
			names = append(names, one.PCI)
		}
	}
	return names
}

// Update takes a snapshot and returns the GPUs that it shows to be lost, and to
// answer again. A GPU that was there and is not in the snapshot is lost.
func (c *Cards) Update(snapshot *wire.Snapshot, at time.Time) (lost, found []*Card) {
	answers := map[*Card]bool{}
	for i := range snapshot.GPUs {
		gpu := &snapshot.GPUs[i]
		one := c.meet(gpu.Identity)
		if one == nil || gpu.Lost {
			continue
		}
		answers[one] = true
		if one.gone {
			found = append(found, one)
		}
		one.take(gpu, at, 2*c.interval)
	}
	for _, one := range c.all {
		if !answers[one] && !one.gone {
			lost = append(lost, one)
		}
		one.gone = !answers[one]
	}
	return lost, found
}

// meet returns the GPU, a new one if need be; nil when it has no address: it was
// lost before the helper could ask.
func (c *Cards) meet(identity nvml.Identity) *Card {
	if identity.PCI == "" {
		return nil
	}
	one := c.Find(identity.PCI)
	if one == nil {
		if len(c.all) == maxCards {
			return nil
		}
		one = &Card{throttled: map[string]time.Duration{}, counted: map[string]bool{}, links: map[linkFlow]float64{}}
		c.all = append(c.all, one)
		one.Identity = identity
		slices.SortFunc(c.all, func(a, b *Card) int {
			if a.PCI < b.PCI {
				return -1
			}
			return 1
		})
	}
	if identity.UUID != "" { // one that is just lost may not tell
		one.Identity = identity
	}
	return one
}

// take takes a reading and sums up what the library gives as rates. A gap counts
// for no more than most.
func (c *Card) take(gpu *wire.GPU, at time.Time, most time.Duration) {
	if !c.read.IsZero() {
		passed := max(0, min(at.Sub(c.read), most))
		c.sum(gpu, passed)
	}
	c.read, c.now = at, *gpu
}

// linkFlow is one direction of an NVLink; AllLinks stands for all together.
type linkFlow struct {
	link      int
	direction string
}

// AllLinks is the number that stands for all NVLinks of a GPU together.
const AllLinks = -1

// Now is the last reading.
func (c *Card) Now() *wire.GPU { return &c.now }

// Summed is the bytes over an NVLink, or over AllLinks, as summed up from rates.
func (c *Card) Summed(link int, direction string) (bytes float64, any bool) {
	bytes, any = c.links[linkFlow{link, direction}]
	return bytes, any
}

// sumLinks sums up the rates of the links and of all together.
func (c *Card) sumLinks(gpu *wire.GPU, passed time.Duration) {
	add := func(link int, direction string, rate uint64, there bool) {
		if there {
			c.links[linkFlow{link, direction}] += float64(rate) * passed.Seconds()
		}
	}
	for _, link := range gpu.Links {
		rate, there := link.Values[nvml.LinkTransmitRate]
		add(link.Number, Transmit, rate, there)
		rate, there = link.Values[nvml.LinkReceiveRate]
		add(link.Number, Receive, rate, there)
	}
	rate, there := gpu.Values[nvml.NVLinkTransmit]
	add(AllLinks, Transmit, rate, there)
	rate, there = gpu.Values[nvml.NVLinkReceive]
	add(AllLinks, Receive, rate, there)
}

func (c *Card) sum(gpu *wire.GPU, passed time.Duration) {
	c.sumLinks(gpu, passed)
	c.sent += float64(gpu.Values[nvml.PCIeTransmit]) * 1000 * passed.Seconds()
	c.received += float64(gpu.Values[nvml.PCIeReceive]) * 1000 * passed.Seconds()
	for _, reason := range nvml.ThrottleReasons() {
		if _, counted := gpu.Throttled[reason.Name]; counted {
			c.counted[reason.Name] = true
		}
		if reason.Bit != 0 && gpu.Values[nvml.ThrottleActive]&reason.Bit != 0 {
			c.throttled[reason.Name] += passed
		}
	}
}

// slowed is how long each reason held the clocks down: as the driver counts, and
// where it does not, summed up from what holds them down at each reading.
func (c *Card) slowed() map[string]float64 {
	seconds := map[string]float64{}
	for name, ns := range c.now.Throttled {
		seconds[name] = float64(ns) / 1e9
	}
	_, heat := c.now.Throttled[nvml.ThermalBoth]
	_, sampled := c.now.Values[nvml.ThrottleActive]
	for _, reason := range nvml.ThrottleReasons() {
		_, there := seconds[reason.Name]
		thermal := reason.Name == "sw_thermal_slowdown" || reason.Name == "hw_thermal_slowdown"
		if there || !sampled || reason.Bit == 0 || c.counted[reason.Name] || heat && thermal {
			continue
		}
		seconds[reason.Name] = c.throttled[reason.Name].Seconds()
	}
	return seconds
}

// incidents are findings of health watches that were not there at the reading
// before.
func (c *Cards) incidents() []Fault {
	var fresh []Fault
	for _, one := range c.all {
		found := map[wire.Incident]bool{}
		for _, i := range one.now.Health {
			text := i.Text
			i.Text = ""
			if !one.ill[i] && !found[i] {
				fresh = append(fresh, Fault{PCI: one.PCI, Event: EventHealth, Kind: i.System, Failed: i.Failed, Text: text})
			}
			found[i] = true
		}
		one.ill = found
	}
	return fresh
}

// owner is the one process on the GPU or, of an event of MIG, on that instance.
func (c *Card) owner(gpuInstance, computeInstance int) (pid uint32, sure bool) {
	for _, p := range c.now.Processes {
		if gpuInstance != nvml.NoInstance && p.GPUInstance != gpuInstance ||
			computeInstance != nvml.NoInstance && p.ComputeInstance != computeInstance || p.PID == pid {
			continue
		}
		if pid != 0 {
			return 0, false
		}
		pid = p.PID
	}
	return pid, pid != 0
}
