// Package inventory remembers the GPUs, and what has to be known of them from one
// helper to the next: a new connection does not show a GPU that is lost, and another
// source counts from another start.
package inventory

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// maxGPUs bounds what is remembered of GPUs that come and go.
const maxGPUs = 64

// Inventory is the GPUs.
type Inventory struct {
	interval time.Duration
	source   string
	gpus     []*GPU // in the order of their addresses
}

// New remembers GPUs that are read once in an interval.
func New(interval time.Duration) *Inventory { return &Inventory{interval: interval} }

// All lists the GPUs in the order of their addresses.
func (v *Inventory) All() []*GPU { return v.gpus }

// Find returns the GPU at an address.
func (v *Inventory) Find(pci string) *GPU {
	for _, gpu := range v.gpus {
		if gpu.PCI == pci {
			return gpu
		}
	}
	return nil
}

// Lost lists the addresses of those that do not answer.
func (v *Inventory) Lost() []string {
	var addresses []string
	for _, gpu := range v.gpus {
		if gpu.Lost {
			addresses = append(addresses, gpu.PCI)
		}
	}
	return addresses
}

// ReadThrough says what the next snapshots are read through. What is counted goes on
// when that changes.
func (v *Inventory) ReadThrough(source string) {
	if v.source == source {
		return
	}
	v.source = source
	for _, gpu := range v.gpus {
		gpu.traffic.moved()
		gpu.throttled.moved()
		gpu.linkErrors.moved()
	}
}

// Update takes a snapshot and returns the GPUs that it shows to be lost, and to
// answer again. A GPU that was there and is not in the snapshot is lost.
func (v *Inventory) Update(snapshot *protocol.Snapshot, at time.Time) (lost, found []*GPU) {
	answers := map[*GPU]bool{}
	for i := range snapshot.GPUs {
		now := &snapshot.GPUs[i]
		gpu := v.meet(now.Identity)
		if gpu == nil || now.Lost {
			continue
		}
		answers[gpu] = true
		if gpu.Lost {
			found = append(found, gpu)
		}
		gpu.take(now, at, 2*v.interval)
	}
	for _, gpu := range v.gpus {
		if !answers[gpu] && !gpu.Lost {
			lost = append(lost, gpu)
		}
		gpu.Lost = !answers[gpu]
	}
	return lost, found
}

// meet returns the GPU, a new one if need be; nil when it has no address: it was
// lost before the helper could ask.
func (v *Inventory) meet(identity device.Identity) *GPU {
	if identity.PCI == "" {
		return nil
	}
	gpu := v.Find(identity.PCI)
	if gpu == nil {
		if len(v.gpus) == maxGPUs {
			return nil
		}
		gpu = &GPU{Identity: identity, traffic: meters[flow]{}, linkErrors: meters[string]{}, throttled: meters[string]{}, counted: map[string]bool{}}
		v.gpus = append(v.gpus, gpu)
		slices.SortFunc(v.gpus, func(a, b *GPU) int { return cmp.Compare(a.PCI, b.PCI) })
	}
	if identity.UUID != "" { // one that is just lost may not tell
		gpu.Identity = identity
	}
	return gpu
}

// Finding is what a health watch found of a GPU.
type Finding struct {
	PCI string
	protocol.Incident
}

// Findings are those of health watches that were not there when the watches were
// last read.
func (v *Inventory) Findings() []Finding {
	var fresh []Finding
	for _, gpu := range v.gpus {
		if !gpu.Latest.HealthKnown {
			continue
		}
		found := map[protocol.Incident]bool{}
		for _, i := range gpu.Latest.Health {
			said := i
			i.Text = ""
			if !gpu.ill[i] && !found[i] {
				fresh = append(fresh, Finding{gpu.PCI, said})
			}
			found[i] = true
		}
		gpu.ill = found
	}
	return fresh
}
