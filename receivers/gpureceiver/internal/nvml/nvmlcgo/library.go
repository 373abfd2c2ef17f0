//go:build cgo

package nvmlcgo

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	own "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml"
)

const built = true

// library makes no call of a function that this library file does not have: the
// symbols are bound when first called, and one that is missing ends the process.
type library struct {
	nvml.Interface
	known     map[string]bool
	addresses map[nvml.Device]string // handle → PCI address; complete before anybody listens
}

// New returns the library in the file path, or, with path "", the one that the
// dynamic linker finds. Nothing is loaded before Init.
func New(path string) own.Library {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return &library{Interface: nvml.New(options...), known: map[string]bool{}, addresses: map[nvml.Device]string{}}
}

// has reports whether the library has a function; the first of several names
// that it has will do.
func (l *library) has(names ...string) bool {
	for _, name := range names {
		there, asked := l.known[name]
		if !asked {
			there = l.Extensions().LookupSymbol(name) == nil
			l.known[name] = there
		}
		if there {
			return true
		}
	}
	return false
}

func (l *library) Init() own.Code { return own.Code(l.Interface.Init()) }

func (l *library) Shutdown() { l.Interface.Shutdown() }

func (l *library) Versions() (driver, version string, code own.Code) {
	ret := nvml.ERROR_FUNCTION_NOT_FOUND
	if l.has("nvmlSystemGetDriverVersion") {
		driver, ret = l.SystemGetDriverVersion()
	}
	if l.has("nvmlSystemGetNVMLVersion") {
		version, _ = l.SystemGetNVMLVersion()
	}
	return driver, version, own.Code(ret)
}

func (l *library) Count() (int, own.Code) {
	count, ret := l.DeviceGetCount()
	return count, own.Code(ret)
}

func (l *library) Device(index int) (own.Device, own.Code) {
	d, ret := l.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, own.Code(ret)
	}
	return &gpu{Device: d, library: l}, own.OK
}

// Listen registers each device for those of the types that it supports.
func (l *library) Listen(devices []own.Device, types uint64) (own.Events, own.Code) {
	if !l.has("nvmlEventSetCreate") || !l.has("nvmlEventSetWait_v2", "nvmlEventSetWait") || !l.has("nvmlDeviceRegisterEvents") ||
		!l.has("nvmlDeviceGetSupportedEventTypes") {
		return nil, own.FunctionNotFound
	}
	set, ret := l.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, own.Code(ret)
	}
	heard := false
	for _, d := range devices {
		supported, ret := d.(*gpu).GetSupportedEventTypes()
		if ret != nvml.SUCCESS || supported&types == 0 {
			continue
		}
		if ret = d.(*gpu).RegisterEvents(supported&types, set); ret == nvml.SUCCESS {
			heard = true
		}
	}
	if !heard {
		set.Free()
		return nil, own.NotSupported
	}
	return &events{set: set, addresses: l.addresses}, own.OK
}

type events struct {
	set       nvml.EventSet
	addresses map[nvml.Device]string
}

// Wait names the GPU by what its handle was when it was opened: a GPU that is
// lost does not tell its address any more.
func (e *events) Wait(milliseconds uint32) (device.Event, own.Code) {
	data, ret := e.set.Wait(milliseconds)
	if ret != nvml.SUCCESS {
		return device.Event{}, own.Code(ret)
	}
	return device.Event{
		PCI: e.addresses[data.Device], Type: data.EventType, Data: data.EventData,
		GPUInstance: instance(data.GpuInstanceId), ComputeInstance: instance(data.ComputeInstanceId),
	}, own.OK
}

// instance of MIG: 0xFFFFFFFF is none.
func instance(id uint32) int {
	if id == ^uint32(0) {
		return device.NoInstance
	}
	return int(id)
}

// pciAddress is the address as the kernel writes it. NVML has eight digits for
// the domain and no function other than 0.
func pciAddress(info *nvml.PciInfo) string {
	function := "0"
	text := make([]byte, 0, len(info.BusId))
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	if _, after, found := strings.Cut(string(text), "."); found && len(after) == 1 {
		function = strings.ToLower(after)
	}
	return fmt.Sprintf("%04x:%02x:%02x.%s", info.Domain, info.Bus, info.Device, function)
}
