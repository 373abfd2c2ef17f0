// Package device has the words that both sources and the receiver use of a GPU:
// who it is, its numbers, its events. Numbers and their meaning are those of nvml.h
// (NVML 13, as shipped with go-nvml v0.13.3-0), from which DCGM has them too.
package device

// The types of events (nvmlEventType).
const (
	EventECCCorrected   uint64 = 1 << 0
	EventECCUncorrected uint64 = 1 << 1
	EventXid            uint64 = 1 << 3
	EventClock          uint64 = 1 << 4
)

// Event is something that happened to a GPU.
type Event struct {
	PCI             string // of the GPU, "" when it cannot be told any more
	Type            uint64
	Data            uint64 // the code of an Xid
	GPUInstance     int    // of MIG; none: -1
	ComputeInstance int
}

// Identity of a GPU. What the library does not tell is empty.
type Identity struct {
	Index    int    `json:"index"`
	PCI      string `json:"pci"` // dddd:bb:dd.f in lower case
	UUID     string `json:"uuid,omitempty"`
	Model    string `json:"model,omitempty"`
	Serial   string `json:"serial,omitempty"`
	VBIOS    string `json:"vbios,omitempty"`
	MIGMode  bool   `json:"mig_mode,omitempty"`
	Computed string `json:"compute_capability,omitempty"`
}

// MIG is a part of a GPU.
type MIG struct {
	UUID            string `json:"uuid"`
	GPUInstance     int    `json:"gpu_instance"`
	ComputeInstance int    `json:"compute_instance"`
	MemoryTotal     uint64 `json:"memory_total"`
	MemoryUsed      uint64 `json:"memory_used"`
}

// Process runs on a GPU.
type Process struct {
	PID             uint32 `json:"pid"`
	UsedMemory      uint64 `json:"used_memory"`
	MemoryKnown     bool   `json:"memory_known,omitempty"`
	GPUInstance     int    `json:"gpu_instance"` // of MIG; none: -1
	ComputeInstance int    `json:"compute_instance"`
}

// NoInstance stands for no instance of MIG, where nvml.h has 0xFFFFFFFF.
const NoInstance = -1
