// Package nvml reads GPUs through NVIDIA's Management Library: what to ask, what to
// leave out and when a GPU is lost; the numbers stay as the library gives them. The
// library stands behind an interface, which the true one satisfies through go-nvml
// (package nvmlcgo) and tests satisfy with a script.
package nvml

import (
	"strconv"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

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
	Identity() (device.Identity, Code)
	Read(device.Quantity) (uint64, Code)
	// Fields fills in values and codes of fields, all in one call.
	Fields([]Field) Code
	// Link is one number of a link: its state, or an error counter of NVLink 1 to 4.
	Link(link int, quantity device.LinkQuantity) (uint64, Code)
	// ECC is a counter of memory errors.
	ECC(device.ECCCounter) (uint64, Code)
	Processes() ([]device.Process, Code)
	// MIG lists the MIG devices of the GPU; none when MIG is off.
	MIG() ([]device.MIG, Code)
}

// Events waits for events.
type Events interface {
	// Wait returns Timeout when nothing came in so many milliseconds.
	Wait(milliseconds uint32) (device.Event, Code)
}
