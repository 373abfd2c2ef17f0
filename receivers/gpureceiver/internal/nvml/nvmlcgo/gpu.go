//go:build cgo

package nvmlcgo

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	own "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml"
)

type gpu struct {
	nvml.Device
	library *library
	table   map[device.Quantity]call // made when first used
}

// Identity needs the address; the rest is left empty where it cannot be told.
func (d *gpu) Identity() (device.Identity, own.Code) {
	info, ret := d.GetPciInfo()
	if ret != nvml.SUCCESS {
		return device.Identity{}, own.Code(ret)
	}
	identity := device.Identity{PCI: pciAddress(&info)}
	d.library.addresses[d.Device] = identity.PCI
	for _, text := range []struct {
		symbol string
		get    func() (string, nvml.Return)
		to     *string
	}{
		{"nvmlDeviceGetUUID", d.GetUUID, &identity.UUID},
		{"nvmlDeviceGetName", d.GetName, &identity.Model},
		{"nvmlDeviceGetSerial", d.GetSerial, &identity.Serial},
		{"nvmlDeviceGetVbiosVersion", d.GetVbiosVersion, &identity.VBIOS},
	} {
		if d.library.has(text.symbol) {
			if value, ret := text.get(); ret == nvml.SUCCESS {
				*text.to = value
			}
		}
	}
	if d.library.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			identity.Computed = strconv.Itoa(major) + "." + strconv.Itoa(minor)
		}
	}
	if d.library.has("nvmlDeviceGetMigMode") {
		mode, _, ret := d.GetMigMode()
		identity.MIGMode = ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	}
	return identity, own.OK
}

// Read gives one number.
func (d *gpu) Read(quantity device.Quantity) (uint64, own.Code) {
	if d.table == nil {
		d.table = d.calls()
	}
	get, there := d.table[quantity]
	if !there || !d.library.has(get.symbol) {
		return 0, own.FunctionNotFound
	}
	value, ret := get.call()
	return value, own.Code(ret)
}

// Fields asks for all at once.
func (d *gpu) Fields(fields []own.Field) own.Code {
	if !d.library.has("nvmlDeviceGetFieldValues") {
		return own.FunctionNotFound
	}
	values := make([]nvml.FieldValue, len(fields))
	for i, field := range fields {
		values[i] = nvml.FieldValue{FieldId: field.ID, ScopeId: field.Scope}
	}
	if ret := d.GetFieldValues(values); ret != nvml.SUCCESS {
		return own.Code(ret)
	}
	for i := range values {
		fields[i].Code = own.Code(values[i].NvmlReturn)
		var sound bool
		if fields[i].Value, sound = fieldNumber(&values[i]); !sound && fields[i].Code == own.OK {
			fields[i].Code = own.NotSupported
		}
	}
	return own.OK
}

// fieldNumber reads nvmlValue_t, a union, in this machine's byte order. What is
// negative or no whole number is no counter.
func fieldNumber(v *nvml.FieldValue) (uint64, bool) {
	switch raw := v.Value[:]; nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(raw)), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(raw), true
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		n := int64(binary.NativeEndian.Uint64(raw))
		return uint64(n), n >= 0
	case nvml.VALUE_TYPE_SIGNED_INT:
		n := int32(binary.NativeEndian.Uint32(raw))
		return uint64(n), n >= 0
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(raw)), true
	case nvml.VALUE_TYPE_DOUBLE:
		f := math.Float64frombits(binary.NativeEndian.Uint64(raw))
		return uint64(f), f >= 0 && f < 1<<63
	}
	return 0, false
}

func (d *gpu) Link(link int, quantity device.LinkQuantity) (uint64, own.Code) {
	if quantity == device.LinkState {
		if !d.library.has("nvmlDeviceGetNvLinkState") {
			return 0, own.FunctionNotFound
		}
		state, ret := d.GetNvLinkState(link)
		if ret == nvml.ERROR_INVALID_ARGUMENT { // beyond the links of this GPU
			ret = nvml.ERROR_NOT_SUPPORTED
		}
		return uint64(state), own.Code(ret)
	}
	for counter, name := range device.LinkCounters() {
		if name == quantity && d.library.has("nvmlDeviceGetNvLinkErrorCounter") {
			count, ret := d.GetNvLinkErrorCounter(link, nvml.NvLinkErrorCounter(counter))
			return count, own.Code(ret)
		}
	}
	return 0, own.FunctionNotFound
}

func (d *gpu) ECC(c device.ECCCounter) (uint64, own.Code) {
	kind := nvml.MEMORY_ERROR_TYPE_CORRECTED
	if c.Type == device.ECCUncorrected {
		kind = nvml.MEMORY_ERROR_TYPE_UNCORRECTED
	}
	lifetime := nvml.VOLATILE_ECC
	if c.Lifetime == device.ECCAggregate {
		lifetime = nvml.AGGREGATE_ECC
	}
	if c.Location == device.ECCAll {
		if !d.library.has("nvmlDeviceGetTotalEccErrors") {
			return 0, own.FunctionNotFound
		}
		count, ret := d.GetTotalEccErrors(kind, lifetime)
		return count, own.Code(ret)
	}
	location := nvml.MEMORY_LOCATION_DRAM
	if c.Location == device.ECCSRAM {
		location = nvml.MEMORY_LOCATION_SRAM
	}
	if !d.library.has("nvmlDeviceGetMemoryErrorCounter") {
		return 0, own.FunctionNotFound
	}
	count, ret := d.GetMemoryErrorCounter(kind, lifetime, location)
	return count, own.Code(ret)
}

// Processes lists those that compute.
func (d *gpu) Processes() ([]device.Process, own.Code) {
	if !d.library.has("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses") {
		return nil, own.FunctionNotFound
	}
	infos, ret := d.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil, own.Code(ret)
	}
	processes := make([]device.Process, len(infos))
	for i, info := range infos {
		known := info.UsedGpuMemory != math.MaxUint64 // NVML_VALUE_NOT_AVAILABLE
		processes[i] = device.Process{
			PID: info.Pid, MemoryKnown: known, GPUInstance: instance(info.GpuInstanceId), ComputeInstance: instance(info.ComputeInstanceId),
		}
		if known {
			processes[i].UsedMemory = info.UsedGpuMemory
		}
	}
	return processes, own.OK
}

// MIG lists the parts of a GPU that is divided.
func (d *gpu) MIG() ([]device.MIG, own.Code) {
	for _, symbol := range []string{
		"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	} {
		if !d.library.has(symbol) {
			return nil, own.FunctionNotFound
		}
	}
	most, ret := d.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, own.Code(ret)
	}
	var parts []device.MIG
	for i := range most {
		handle, ret := d.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, own.Code(ret)
		}
		part := device.MIG{GPUInstance: device.NoInstance, ComputeInstance: device.NoInstance}
		if id, ret := handle.GetGpuInstanceId(); ret == nvml.SUCCESS {
			part.GPUInstance = id
		}
		if id, ret := handle.GetComputeInstanceId(); ret == nvml.SUCCESS {
			part.ComputeInstance = id
		}
		part.UUID, _ = handle.GetUUID()
		if memory, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
			part.MemoryTotal, part.MemoryUsed = memory.Total, memory.Used
		}
		parts = append(parts, part)
	}
	return parts, own.OK
}
