// Package nvml is the little that the receivers need of NVIDIA's Management
// Library: the names of numbers, which DCGM reads from it too, and a thin
// interface, which the real library satisfies through go-nvml (the nvml
// receiver's package gonvml) and tests satisfy with a script. Numbers and their
// meaning are those of nvml.h (NVML 13, as shipped with go-nvml v0.13.3-0).
package nvml

import "strconv"

// Code is what an NVML call returns (nvmlReturn_t). A code that is not OK is an
// error.
type Code int

// The codes that are told apart.
const (
	OK                 Code = 0
	NotSupported       Code = 3
	NoPermission       Code = 4
	NotFound           Code = 6
	DriverNotLoaded    Code = 9
	Timeout            Code = 10
	LibraryNotFound    Code = 12
	FunctionNotFound   Code = 13 // the library is older than the function
	GPULost            Code = 15
	ResetRequired      Code = 16
	VersionMismatch    Code = 18 // library and driver differ
	DeprecatedArgument Code = 25 // the version of an argument is not known to the library
	Unknown            Code = 999
)

// Error is the name of the code as in nvml.h, in lower case.
func (c Code) Error() string {
	names := map[Code]string{
		OK: "success", 1: "uninitialized", 2: "invalid_argument", NotSupported: "not_supported", NoPermission: "no_permission",
		NotFound: "not_found", 7: "insufficient_size", 8: "insufficient_power", DriverNotLoaded: "driver_not_loaded", Timeout: "timeout",
		11: "irq_issue", LibraryNotFound: "library_not_found", FunctionNotFound: "function_not_found", 14: "corrupted_inforom",
		GPULost: "gpu_is_lost", ResetRequired: "reset_required", 17: "operating_system", VersionMismatch: "lib_rm_version_mismatch",
		19: "in_use", 20: "memory", 21: "no_data", 27: "not_ready", 28: "gpu_not_found", 29: "invalid_state", Unknown: "unknown",
	}
	if name, known := names[c]; known {
		return name
	}
	return "nvml_error_" + strconv.Itoa(int(c))
}

// Absent reports whether c says that this GPU, driver or library has no such
// thing: nothing to report as an error.
func (c Code) Absent() bool {
	return c == NotSupported || c == FunctionNotFound || c == NotFound || c == DeprecatedArgument
}

// Library is an NVML library. Each of its calls, and of its devices', may hang
// as long as the driver does.
type Library interface {
	// Init loads the library and connects to the driver; Shutdown undoes it.
	Init() Code
	Shutdown()
	// Versions of the driver and of the library.
	Versions() (driver, library string, code Code)
	Count() (int, Code)
	Device(index int) (Device, Code)
	// Listen registers the devices for events of these types, as far as each
	// supports them. NotSupported: none does.
	Listen(devices []Device, types uint64) (Events, Code)
}

// Device is a GPU.
type Device interface {
	Identity() (Identity, Code)
	Read(Quantity) (uint64, Code)
	// Fields fills in values and codes of fields, all in one call.
	Fields([]Field) Code
	// Link is one number of a link: its state, or an error counter of NVLink 1 to 4.
	Link(link int, quantity LinkQuantity) (uint64, Code)
	// ECC is a counter of memory errors.
	ECC(ECCCounter) (uint64, Code)
	Processes() ([]Process, Code)
	// MIG lists the MIG devices of the GPU; none when MIG is off.
	MIG() ([]MIG, Code)
}

// Events waits for events.
type Events interface {
	// Wait returns Timeout when nothing came in so many milliseconds.
	Wait(milliseconds uint32) (Event, Code)
}

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
