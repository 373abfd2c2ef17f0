package dcgm

import "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"

// field is one that is read, with its name in dcgm_fields.h: a test compares them.
type field struct {
	id   uint16
	name string
}

// Fields that say who a GPU is.
const (
	fieldDriver  = 1
	fieldModel   = 50
	fieldIndex   = 52
	fieldSerial  = 53
	fieldUUID    = 54
	fieldBusID   = 57
	fieldCompute = 63
	fieldMIG     = 67
	fieldVBIOS   = 85
)

// FieldXid is the last Xid of a GPU, with its time.
const FieldXid = 230

// who lists the fields of the identity.
func who() []field {
	return []field{
		{fieldDriver, "DCGM_FI_SYSTEM_DRIVER_VERSION"}, {fieldModel, "DCGM_FI_DEV_GPU_NAME"}, {fieldIndex, "DCGM_FI_DEV_NVML_INDEX"},
		{fieldSerial, "DCGM_FI_DEV_BOARD_SERIAL"}, {fieldUUID, "DCGM_FI_DEV_GPU_UUID"}, {fieldBusID, "DCGM_FI_DEV_PCI_BUS_ID"},
		{fieldCompute, "DCGM_FI_CUDA_GPU_COMPUTE_CAPABILITY"}, {fieldMIG, "DCGM_FI_DEV_MIG_MODE"}, {fieldVBIOS, "DCGM_FI_DEV_VBIOS_VERSION"},
	}
}

// quantity is a field that is one number of a GPU; factor turns DCGM's unit into
// that of the quantity.
type quantity struct {
	field
	is     device.Quantity
	factor float64
}

const mebi = 1 << 20

// quantities lists them. DCGM has watts, MiB and bytes/s where NVML has
// milliwatts, bytes and KB/s.
func quantities() []quantity {
	return []quantity{
		{field{100, "DCGM_FI_DEV_SM_CLOCK"}, device.ClockSM, 1},
		{field{101, "DCGM_FI_DEV_MEM_CLOCK"}, device.ClockMemory, 1},
		{field{102, "DCGM_FI_DEV_VIDEO_CLOCK"}, device.ClockVideo, 1},
		{field{112, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}, device.ThrottleActive, 1},
		{field{113, "DCGM_FI_DEV_MAX_SM_CLOCK"}, device.ClockSMMax, 1},
		{field{114, "DCGM_FI_DEV_MAX_MEM_CLOCK"}, device.ClockMemoryMax, 1},
		{field{115, "DCGM_FI_DEV_MAX_VIDEO_CLOCK"}, device.ClockVideoMax, 1},
		{field{140, "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"}, device.TemperatureMemory, 1},
		{field{150, "DCGM_FI_DEV_GPU_TEMP_CELSIUS"}, device.TemperatureGPU, 1},
		{field{155, "DCGM_FI_DEV_BOARD_POWER_WATTS"}, device.PowerUsage, 1000},
		{field{156, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}, device.Energy, 1},
		{field{158, "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"}, device.TemperatureSlowdown, 1},
		{field{159, "DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS"}, device.TemperatureShutdown, 1},
		{field{164, "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"}, device.PowerLimit, 1000},
		{field{200, "DCGM_FI_DEV_PCIE_TX_THROUGHPUT"}, device.PCIeTransmit, 1},
		{field{201, "DCGM_FI_DEV_PCIE_RX_THROUGHPUT"}, device.PCIeReceive, 1},
		{field{202, "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"}, device.PCIeReplays, 1},
		{field{203, "DCGM_FI_DEV_GPU_UTIL_RATIO"}, device.UtilizationGPU, 1},
		{field{204, "DCGM_FI_DEV_MEM_COPY_UTIL"}, device.UtilizationMemory, 1},
		{field{206, "DCGM_FI_DEV_ENC_UTIL"}, device.UtilizationEncoder, 1},
		{field{207, "DCGM_FI_DEV_DEC_UTIL"}, device.UtilizationDecoder, 1},
		{field{235, "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"}, device.PCIeGenerationMax, 1},
		{field{236, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"}, device.PCIeWidthMax, 1},
		{field{237, "DCGM_FI_DEV_PCIE_LINK_GEN"}, device.PCIeGeneration, 1},
		{field{238, "DCGM_FI_DEV_PCIE_LINK_WIDTH"}, device.PCIeWidth, 1},
		{field{250, "DCGM_FI_DEV_FB_TOTAL"}, device.MemoryTotal, mebi},
		{field{251, "DCGM_FI_DEV_FB_FREE"}, device.MemoryFree, mebi},
		{field{252, "DCGM_FI_DEV_FB_USED"}, device.MemoryUsed, mebi},
		{field{253, "DCGM_FI_DEV_FB_RESERVED"}, device.MemoryReserved, mebi},
		{field{390, "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL"}, device.RetiredCorrected, 1},
		{field{391, "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL"}, device.RetiredUncorrected, 1},
		{field{392, "DCGM_FI_DEV_PAGE_RETIRED_PENDING"}, device.RetirePending, 1},
		{field{393, "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"}, device.RemappedUncorrected, 1},
		{field{394, "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"}, device.RemappedCorrected, 1},
		{field{395, "DCGM_FI_DEV_ROW_REMAP_FAILED"}, device.RemapFailed, 1},
		{field{396, "DCGM_FI_DEV_ROW_REMAP_PENDING"}, device.RemapPending, 1},
		{field{1523, "DCGM_FI_DEV_GPU_RECOVERY_ACTION"}, device.RecoveryAction, 1},
	}
}

// profiled are the quantities that the profiling module measures. Its PCIe rates
// take the place of the driver's, which are samples of 20 ms.
func profiled() []quantity {
	return []quantity{
		{field{1009, "DCGM_FI_PROF_PCIE_TX_BYTES"}, device.PCIeTransmit, 1.0 / 1000},
		{field{1010, "DCGM_FI_PROF_PCIE_RX_BYTES"}, device.PCIeReceive, 1.0 / 1000},
		{field{1011, "DCGM_FI_PROF_NVLINK_TX_BYTES"}, device.NVLinkTransmit, 1},
		{field{1012, "DCGM_FI_PROF_NVLINK_RX_BYTES"}, device.NVLinkReceive, 1},
	}
}

// named is a field whose value goes under a name.
type named struct {
	field
	is string
}

// Occupancy is the ratio that is no share of time.
const Occupancy = "sm_occupancy"

// ratios are shares of time in which a part of the GPU was active, as the
// profiling module measures them.
func ratios() []named {
	return []named{
		{field{1001, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"}, "graphics_engine"},
		{field{1002, "DCGM_FI_PROF_SM_UTIL_RATIO"}, "sm"},
		{field{1003, "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"}, Occupancy},
		{field{1004, "DCGM_FI_PROF_TENSOR_UTIL_RATIO"}, "tensor"},
		{field{1005, "DCGM_FI_PROF_DRAM_UTIL_RATIO"}, "dram"},
		{field{1006, "DCGM_FI_PROF_FP64_UTIL_RATIO"}, "fp64"},
		{field{1007, "DCGM_FI_PROF_FP32_UTIL_RATIO"}, "fp32"},
		{field{1008, "DCGM_FI_PROF_FP16_UTIL_RATIO"}, "fp16"},
	}
}

// throttles are the nanoseconds in which the clocks were held down, by reason.
// Only newer engines and drivers have 1422 to 1424.
func throttles() []named {
	return []named{
		{field{240, "DCGM_FI_DEV_POWER_VIOLATION"}, "sw_power_cap"},
		{field{241, "DCGM_FI_DEV_THERMAL_VIOLATION"}, device.ThermalBoth},
		{field{242, "DCGM_FI_DEV_SYNC_BOOST_VIOLATION"}, "sync_boost"},
		{field{243, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION"}, "board_limit"},
		{field{244, "DCGM_FI_DEV_LOW_UTIL_VIOLATION"}, "low_utilization"},
		{field{245, "DCGM_FI_DEV_RELIABILITY_VIOLATION"}, "reliability"},
		{field{1422, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS"}, device.ThermalSoftware},
		{field{1423, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"}, device.ThermalHardware},
		{field{1424, "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"}, "hw_power_brake_slowdown"},
	}
}

// memoryErrors is a field that is a counter of memory errors.
type memoryErrors struct {
	field
	is device.ECCCounter
}

func ecc() []memoryErrors {
	counter := func(id uint16, name, kind, lifetime, location string) memoryErrors {
		return memoryErrors{field{id, "DCGM_FI_DEV_ECC_" + name}, device.ECCCounter{Type: kind, Lifetime: lifetime, Location: location}}
	}
	const corrected, uncorrected, volatile, aggregate = device.ECCCorrected, device.ECCUncorrected, device.ECCVolatile, device.ECCAggregate
	return []memoryErrors{
		counter(310, "SBE_VOL_TOTAL", corrected, volatile, device.ECCAll), counter(311, "DBE_VOL_TOTAL", uncorrected, volatile, device.ECCAll),
		counter(312, "SBE_AGG_TOTAL", corrected, aggregate, device.ECCAll), counter(313, "DBE_AGG_TOTAL", uncorrected, aggregate, device.ECCAll),
		counter(318, "SBE_VOL_DEV", corrected, volatile, device.ECCDRAM), counter(319, "DBE_VOL_DEV", uncorrected, volatile, device.ECCDRAM),
		counter(328, "SBE_AGG_DEV", corrected, aggregate, device.ECCDRAM), counter(329, "DBE_AGG_DEV", uncorrected, aggregate, device.ECCDRAM),
		counter(342, "SBE_VOL_SRM", corrected, volatile, device.ECCSRAM), counter(343, "DBE_VOL_SRM", uncorrected, volatile, device.ECCSRAM),
		counter(344, "SBE_AGG_SRM", corrected, aggregate, device.ECCSRAM), counter(345, "DBE_AGG_SRM", uncorrected, aggregate, device.ECCSRAM),
	}
}
