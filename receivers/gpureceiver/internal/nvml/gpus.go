package nvml

import (
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/helper"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// maxProcesses of a GPU that are told; a GPU shared by more is not one of a rank.
const maxProcesses = 128

// GPUs are the devices of a library that was initialised.
type GPUs struct {
	library  Library
	tracker  helper.Tracker
	devices  []Device // nil: cannot be opened
	identity []device.Identity
	lost     []bool
}

// Open finds the devices.
func Open(library Library, tracker helper.Tracker) (*GPUs, Code) {
	g := &GPUs{library: library, tracker: tracker}
	tracker.Begin("device_count", "")
	count, code := library.Count()
	tracker.End()
	if code != OK {
		return nil, code
	}
	for i := range count {
		g.open(i)
	}
	return g, OK
}

// open opens a device and learns who it is. One that is lost already has no
// address; the receiver knows it from before.
func (g *GPUs) open(index int) {
	g.tracker.Begin("device_handle", "")
	gpu, code := g.library.Device(index)
	g.tracker.End()
	identity := device.Identity{Index: index}
	if code == OK {
		g.tracker.Begin("identity", "")
		identity, code = gpu.Identity()
		g.tracker.End()
		identity.Index = index
	} else {
		gpu = nil
	}
	g.devices = append(g.devices, gpu)
	g.identity = append(g.identity, identity)
	g.lost = append(g.lost, code == GPULost)
}

// Listen registers for events of these types.
func (g *GPUs) Listen(types uint64) (Events, Code) {
	var devices []Device
	for i, gpu := range g.devices {
		if gpu != nil && !g.lost[i] {
			devices = append(devices, gpu)
		}
	}
	if len(devices) == 0 {
		return nil, NotSupported
	}
	g.tracker.Begin("register_events", "")
	defer g.tracker.End()
	return g.library.Listen(devices, types)
}

// Count is the number of GPUs.
func (g *GPUs) Count() int { return len(g.devices) }

// Snapshot reads all GPUs.
func (g *GPUs) Snapshot() *protocol.Snapshot {
	snapshot := &protocol.Snapshot{GPUs: make([]protocol.GPU, len(g.devices))}
	for i := range g.devices {
		snapshot.GPUs[i] = g.read(i)
	}
	return snapshot
}

// read reads one GPU. Once a call says that it is lost no further one is made:
// each could take its timeout.
func (g *GPUs) read(i int) protocol.GPU {
	gpu := protocol.GPU{Identity: g.identity[i], Lost: g.lost[i]}
	if g.devices[i] == nil || g.lost[i] {
		return gpu
	}
	r := &reader{device: g.devices[i], tracker: g.tracker, gpu: &gpu}
	for _, step := range []func(){r.quantities, r.fields, r.throttled, r.ecc, r.links, r.mig, r.processes} {
		if step(); gpu.Lost {
			g.lost[i] = true
			return protocol.GPU{Identity: g.identity[i], Lost: true}
		}
	}
	return gpu
}
