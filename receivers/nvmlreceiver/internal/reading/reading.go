// Package reading takes snapshots of GPUs and listens for their events, through
// the thin interface of package nvml. It knows what to ask, what to leave out and
// when a GPU is lost; the numbers stay as the library gives them.
package reading

import (
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/worker"
)

// maxProcesses of a GPU that are told; a GPU shared by more is not one of a rank.
const maxProcesses = 128

// GPUs are the devices of a library that was initialised.
type GPUs struct {
	library  nvml.Library
	tracker  worker.Tracker
	devices  []nvml.Device // nil: cannot be opened
	identity []nvml.Identity
	lost     []bool
}

// Open finds the devices.
func Open(library nvml.Library, tracker worker.Tracker) (*GPUs, nvml.Code) {
	g := &GPUs{library: library, tracker: tracker}
	tracker.Begin("device_count", "")
	count, code := library.Count()
	tracker.End()
	if code != nvml.OK {
		return nil, code
	}
	for i := range count {
		g.open(i)
	}
	return g, nvml.OK
}

// open opens a device and learns who it is. One that is lost already has no
// address; the receiver knows it from before.
func (g *GPUs) open(index int) {
	g.tracker.Begin("device_handle", "")
	device, code := g.library.Device(index)
	g.tracker.End()
	identity := nvml.Identity{Index: index}
	if code == nvml.OK {
		g.tracker.Begin("identity", "")
		identity, code = device.Identity()
		g.tracker.End()
		identity.Index = index
	} else {
		device = nil
	}
	g.devices = append(g.devices, device)
	g.identity = append(g.identity, identity)
	g.lost = append(g.lost, code == nvml.GPULost)
}

// Listen registers for events of these types.
func (g *GPUs) Listen(types uint64) (nvml.Events, nvml.Code) {
	var devices []nvml.Device
	for i, device := range g.devices {
		if device != nil && !g.lost[i] {
			devices = append(devices, device)
		}
	}
	if len(devices) == 0 {
		return nil, nvml.NotSupported
	}
	g.tracker.Begin("register_events", "")
	defer g.tracker.End()
	return g.library.Listen(devices, types)
}

// Count is the number of GPUs.
func (g *GPUs) Count() int { return len(g.devices) }

// Snapshot reads all GPUs.
func (g *GPUs) Snapshot() *wire.Snapshot {
	snapshot := &wire.Snapshot{GPUs: make([]wire.GPU, len(g.devices))}
	for i := range g.devices {
		snapshot.GPUs[i] = g.read(i)
	}
	return snapshot
}

// read reads one GPU. Once a call says that it is lost no further one is made:
// each could take its timeout.
func (g *GPUs) read(i int) wire.GPU {
	gpu := wire.GPU{Identity: g.identity[i], Lost: g.lost[i]}
	if g.devices[i] == nil || g.lost[i] {
		return gpu
	}
	r := &reader{device: g.devices[i], tracker: g.tracker, gpu: &gpu}
	for _, step := range []func(){r.quantities, r.fields, r.throttled, r.ecc, r.links, r.mig, r.processes} {
		if step(); gpu.Lost {
			g.lost[i] = true
			return wire.GPU{Identity: g.identity[i], Lost: true}
		}
	}
	return gpu
}
