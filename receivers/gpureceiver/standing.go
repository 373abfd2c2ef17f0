package gpureceiver

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/internal/gpuask"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// What a GPU does, as records say it.
const (
	activityIdle   = "idle"   // no kernel ran
	activityBusy   = "busy"   // one ran nearly all the time
	activityVaries = "varies" // neither
)

// Bounds of ranks that stand still.
const (
	// samplePeriod is the longest time that a reading of the utilization is about
	// (nvmlUtilization_t: between 1 second and 1/6 second).
	samplePeriod = time.Second
	// inARow is how many readings tell what a GPU does. Two may fall between two kernels.
	inARow = 3
	// almost is from which utilization on a GPU counts as busy. A kernel of NCCL that waits for its
	// peers spins: nvidia-smi shows 100 % (github.com/NVIDIA/nccl issues 257 and 689, cupy issue
	// 3557), or a little less (96 % in vllm issue 41725).
	almost = 95
	// standsFor is how long after it was told a rank is watched: long after that all that could be
	// said of it is said.
	standsFor   = 10 * time.Minute
	maxStanding = 4096
)

// standing is the processes of ranks that stand still, by pid.
type standing map[uint32]*stand

// stand is one of them.
type stand struct {
	from   time.Time // readings that were asked for later are of its standstill alone
	gpus   map[string]*readings
	missed int // readings in a row that show it on no GPU: one list of processes may fail
}

// readings are the last of one GPU.
type readings struct {
	last []sample
	told string
}

// sample is one reading.
type sample struct {
	asked     time.Time
	state     string
	throttled []string
}

// hear takes that a rank stands still, or does so no more. Where there is no room, those give way
// that no GPU knows of: anybody can have processes that call an NCCL of their own.
func (s standing) hear(rank gpuask.Rank, gpus *inventory.Inventory, now time.Time) {
	switch {
	case !rank.Stands:
		delete(s, rank.PID)
		return
	case s[rank.PID] != nil: // it stands on
		return
	case len(s) >= maxStanding:
		on := onGPUs(gpus)
		if !on[rank.PID] {
			return
		}
		maps.DeleteFunc(s, func(pid uint32, _ *stand) bool { return !on[pid] })
	}
	if len(s) < maxStanding {
		s[rank.PID] = &stand{from: now.Add(samplePeriod), gpus: map[string]*readings{}}
	}
}

// onGPUs are the processes that the last reading shows on GPUs.
func onGPUs(gpus *inventory.Inventory) map[uint32]bool {
	on := map[uint32]bool{}
	for _, gpu := range gpus.All() {
		for _, process := range gpu.Latest.Processes {
			on[process.PID] = true
		}
	}
	return on
}

// activity is what is told of the GPU of a rank that stands.
type activity struct {
	gpu    *inventory.GPU
	pid    uint32
	state  string
	since  time.Time
	last   time.Time
	shared bool
	held   []string // reasons that held the clocks down at each reading
	clock  int      // of the SMs, in percent of the highest; 0: not known
}

// look takes a reading that was asked for at that time, and returns what is new.
func (s standing) look(gpus *inventory.Inventory, asked time.Time) (told []activity) {
	there := onGPUs(gpus)
	for _, gpu := range gpus.All() {
		var pids []uint32
		for _, process := range gpu.Latest.Processes {
			if !slices.Contains(pids, process.PID) {
				pids = append(pids, process.PID)
			}
		}
		for _, pid := range pids {
			rank := s[pid]
			if gpu.Lost || rank == nil || asked.Before(rank.from) {
				continue
			}
			if one, news := rank.take(gpu, asked); news {
				one.pid, one.shared = pid, len(pids) > 1
				told = append(told, one)
			}
		}
	}
	for pid, rank := range s {
		if there[pid] || !asked.After(rank.from) {
			rank.missed = 0
		} else {
			rank.missed++
		}
		if asked.Sub(rank.from) > standsFor || rank.missed >= inARow {
			delete(s, pid)
		}
	}
	return told
}

// take takes a reading of a GPU that the rank is on.
func (r *stand) take(gpu *inventory.GPU, asked time.Time) (told activity, news bool) {
	used, known := gpu.Latest.Values[device.UtilizationGPU]
	if !known {
		return told, false // as with MIG
	}
	of := r.gpus[gpu.PCI]
	if of == nil {
		of = &readings{}
		r.gpus[gpu.PCI] = of
	}
	one := sample{asked: asked, state: activityVaries, throttled: heldDown(gpu)}
	switch {
	case used == 0:
		one.state = activityIdle
	case used >= almost:
		one.state = activityBusy
	}
	if of.last = append(of.last, one); len(of.last) < inARow {
		return told, false
	}
	of.last = of.last[len(of.last)-inARow:]
	state, held := of.last[0].state, of.last[0].throttled
	for _, later := range of.last[1:] {
		if later.state != state {
			state = activityVaries
		}
		held = slices.DeleteFunc(slices.Clone(held), func(reason string) bool { return !slices.Contains(later.throttled, reason) })
	}
	said := fmt.Sprint(state, held)
	if said == of.told {
		return told, false
	}
	of.told = said
	told = activity{gpu: gpu, state: state, since: of.last[0].asked.Add(-samplePeriod), last: asked, held: held}
	if now, most := gpu.Latest.Values[device.ClockSM], gpu.Latest.Values[device.ClockSMMax]; now > 0 && most > 0 {
		told.clock = int(min(100, 100*now/most))
	}
	return told, true
}

// heldByFaults are reasons that are no good sign; the others belong to how a GPU is used, or to a
// limit that its owner set.
var heldByFaults = []string{device.ThermalSoftware, device.ThermalHardware, "hw_power_brake_slowdown"}

// heldDown is what holds the clocks down at the last reading.
func heldDown(gpu *inventory.GPU) (reasons []string) {
	bits := gpu.Latest.Values[device.ThrottleActive]
	for _, reason := range device.ThrottleReasons() {
		if reason.Bit != 0 && bits&reason.Bit != 0 && slices.Contains(heldByFaults, reason.Name) {
			reasons = append(reasons, reason.Name)
		}
	}
	return reasons
}

// activities makes a record of each.
func (c *converter) activities(told []activity, observed time.Time) plog.Logs {
	for i := range told {
		one := &told[i]
		who := c.process(one.pid, one.last)
		a := c.logs.GpuActivity(record.Head{
			Trust: record.Proven, Time: one.last, Observed: observed, Severity: record.Info,
			Text: fmt.Sprintf("GPU %s, on which pid %d stands still, was %s at %d readings in a row", one.gpu.PCI, one.pid, inWords[one.state], inARow),
		})
		device := a.Device()
		device.GpuID(one.gpu.PCI)
		device.GpuUUID(one.gpu.UUID)
		device.GpuVendor(vendor)
		a.Identity().Stamp(who)
		a.GpuActivityState(one.state)
		a.GpuActivityReadings(inARow)
		a.GpuActivitySinceUnixNano(one.since.UnixNano())
		a.GpuActivityShared(one.shared)
		record.NotZero(a.GpuActivityClockPercent, one.clock)
		if len(one.held) > 0 {
			record.Texts(a.GpuActivityThrottleReasons, one.held)
		}
	}
	return c.logs.Emit()
}

var inWords = map[string]string{activityIdle: "idle", activityBusy: "busy", activityVaries: "busy for a part of the time"}
