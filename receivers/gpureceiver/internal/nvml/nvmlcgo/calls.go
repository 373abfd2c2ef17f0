//go:build cgo

package nvmlcgo

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

// call is how a number is asked for, and the function that must be there.
type call struct {
	symbol string
	call   func() (uint64, nvml.Return)
}

// calls is the table of numbers.
func (d *gpu) calls() map[device.Quantity]call {
	return map[device.Quantity]call{
		device.UtilizationGPU:     {"nvmlDeviceGetUtilizationRates", d.utilization(func(u nvml.Utilization) uint32 { return u.Gpu })},
		device.UtilizationMemory:  {"nvmlDeviceGetUtilizationRates", d.utilization(func(u nvml.Utilization) uint32 { return u.Memory })},
		device.UtilizationEncoder: {"nvmlDeviceGetEncoderUtilization", first(d.GetEncoderUtilization)},
		device.UtilizationDecoder: {"nvmlDeviceGetDecoderUtilization", first(d.GetDecoderUtilization)},

		device.MemoryTotal:    {"nvmlDeviceGetMemoryInfo", d.memory(func(m nvml.Memory_v2) uint64 { return m.Total })},
		device.MemoryUsed:     {"nvmlDeviceGetMemoryInfo", d.memory(func(m nvml.Memory_v2) uint64 { return m.Used })},
		device.MemoryFree:     {"nvmlDeviceGetMemoryInfo", d.memory(func(m nvml.Memory_v2) uint64 { return m.Free })},
		device.MemoryReserved: {"nvmlDeviceGetMemoryInfo_v2", d.memory(func(m nvml.Memory_v2) uint64 { return m.Reserved })},

		device.TemperatureGPU:      {"nvmlDeviceGetTemperature", number1(d.GetTemperature, nvml.TEMPERATURE_GPU)},
		device.TemperatureSlowdown: {"nvmlDeviceGetTemperatureThreshold", number1(d.GetTemperatureThreshold, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)},
		device.TemperatureShutdown: {"nvmlDeviceGetTemperatureThreshold", number1(d.GetTemperatureThreshold, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)},

		device.PowerUsage: {"nvmlDeviceGetPowerUsage", number(d.GetPowerUsage)},
		device.PowerLimit: {"nvmlDeviceGetEnforcedPowerLimit", number(d.GetEnforcedPowerLimit)},
		device.Energy:     {"nvmlDeviceGetTotalEnergyConsumption", number(d.GetTotalEnergyConsumption)},

		device.ClockGraphics:    {"nvmlDeviceGetClockInfo", number1(d.GetClockInfo, nvml.CLOCK_GRAPHICS)},
		device.ClockSM:          {"nvmlDeviceGetClockInfo", number1(d.GetClockInfo, nvml.CLOCK_SM)},
		device.ClockMemory:      {"nvmlDeviceGetClockInfo", number1(d.GetClockInfo, nvml.CLOCK_MEM)},
		device.ClockVideo:       {"nvmlDeviceGetClockInfo", number1(d.GetClockInfo, nvml.CLOCK_VIDEO)},
		device.ClockGraphicsMax: {"nvmlDeviceGetMaxClockInfo", number1(d.GetMaxClockInfo, nvml.CLOCK_GRAPHICS)},
		device.ClockSMMax:       {"nvmlDeviceGetMaxClockInfo", number1(d.GetMaxClockInfo, nvml.CLOCK_SM)},
		device.ClockMemoryMax:   {"nvmlDeviceGetMaxClockInfo", number1(d.GetMaxClockInfo, nvml.CLOCK_MEM)},
		device.ClockVideoMax:    {"nvmlDeviceGetMaxClockInfo", number1(d.GetMaxClockInfo, nvml.CLOCK_VIDEO)},

		device.ThrottleActive: d.throttleActive(),

		device.RemappedCorrected:   {"nvmlDeviceGetRemappedRows", d.remapped(func(corrected, _ int, _, _ bool) uint64 { return uint64(corrected) })},
		device.RemappedUncorrected: {"nvmlDeviceGetRemappedRows", d.remapped(func(_, uncorrected int, _, _ bool) uint64 { return uint64(uncorrected) })},
		device.RemapPending:        {"nvmlDeviceGetRemappedRows", d.remapped(func(_, _ int, pending, _ bool) uint64 { return bit(pending) })},
		device.RemapFailed:         {"nvmlDeviceGetRemappedRows", d.remapped(func(_, _ int, _, failed bool) uint64 { return bit(failed) })},

		device.PCIeWidth:         {"nvmlDeviceGetCurrPcieLinkWidth", number(d.GetCurrPcieLinkWidth)},
		device.PCIeWidthMax:      {"nvmlDeviceGetMaxPcieLinkWidth", number(d.GetMaxPcieLinkWidth)},
		device.PCIeGeneration:    {"nvmlDeviceGetCurrPcieLinkGeneration", number(d.GetCurrPcieLinkGeneration)},
		device.PCIeGenerationMax: {"nvmlDeviceGetMaxPcieLinkGeneration", number(d.GetMaxPcieLinkGeneration)},
		device.PCIeReplays:       {"nvmlDeviceGetPcieReplayCounter", number(d.GetPcieReplayCounter)},
		device.PCIeTransmit:      {"nvmlDeviceGetPcieThroughput", number1(d.GetPcieThroughput, nvml.PCIE_UTIL_TX_BYTES)},
		device.PCIeReceive:       {"nvmlDeviceGetPcieThroughput", number1(d.GetPcieThroughput, nvml.PCIE_UTIL_RX_BYTES)},
	}
}

type integer interface{ ~int | ~uint32 | ~uint64 }

func number[N integer](get func() (N, nvml.Return)) func() (uint64, nvml.Return) {
	return func() (uint64, nvml.Return) {
		n, ret := get()
		return uint64(n), ret
	}
}

func number1[A any, N integer](get func(A) (N, nvml.Return), argument A) func() (uint64, nvml.Return) {
	return number(func() (N, nvml.Return) { return get(argument) })
}

// first drops the sampling period.
func first(get func() (uint32, uint32, nvml.Return)) func() (uint64, nvml.Return) {
	return number(func() (uint32, nvml.Return) {
		n, _, ret := get()
		return n, ret
	})
}

func (d *gpu) utilization(pick func(nvml.Utilization) uint32) func() (uint64, nvml.Return) {
	return number(func() (uint32, nvml.Return) {
		u, ret := d.GetUtilizationRates()
		return pick(u), ret
	})
}

// memory prefers the second version, where what the driver reserves is not part
// of what is used.
func (d *gpu) memory(pick func(nvml.Memory_v2) uint64) func() (uint64, nvml.Return) {
	return func() (uint64, nvml.Return) {
		if d.library.has("nvmlDeviceGetMemoryInfo_v2") {
			if m, ret := d.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
				return pick(m), ret
			}
		}
		m, ret := d.GetMemoryInfo()
		return pick(nvml.Memory_v2{Total: m.Total, Used: m.Used, Free: m.Free}), ret
	}
}

// throttleActive has a newer name with the same numbers.
func (d *gpu) throttleActive() call {
	if d.library.has("nvmlDeviceGetCurrentClocksEventReasons") {
		return call{"nvmlDeviceGetCurrentClocksEventReasons", number(d.GetCurrentClocksEventReasons)}
	}
	return call{"nvmlDeviceGetCurrentClocksThrottleReasons", number(d.GetCurrentClocksThrottleReasons)}
}

func (d *gpu) remapped(pick func(corrected, uncorrected int, pending, failed bool) uint64) func() (uint64, nvml.Return) {
	return func() (uint64, nvml.Return) {
		corrected, uncorrected, pending, failed, ret := d.GetRemappedRows()
		return pick(corrected, uncorrected, pending, failed), ret
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
