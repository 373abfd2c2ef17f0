package nvml

import "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"

// Called lists the quantities that have a call of their own.
func Called() []device.Quantity {
	return []device.Quantity{
		device.UtilizationGPU, device.UtilizationMemory, device.UtilizationEncoder, device.UtilizationDecoder,
		device.MemoryTotal, device.MemoryUsed, device.MemoryFree, device.MemoryReserved,
		device.TemperatureGPU, device.TemperatureSlowdown, device.TemperatureShutdown, device.PowerUsage, device.PowerLimit, device.Energy,
		device.ClockGraphics, device.ClockSM, device.ClockMemory, device.ClockVideo, device.ClockGraphicsMax, device.ClockSMMax, device.ClockMemoryMax, device.ClockVideoMax,
		device.ThrottleActive, device.RemappedCorrected, device.RemappedUncorrected, device.RemapPending, device.RemapFailed,
		device.PCIeWidth, device.PCIeWidthMax, device.PCIeGeneration, device.PCIeGenerationMax, device.PCIeReplays, device.PCIeTransmit, device.PCIeReceive,
	}
}

// Field is a value that is asked for by number (nvmlFieldValue_t).
type Field struct {
	ID    uint32
	Scope uint32 // the link, of fields of a link
	Value uint64
	Code  Code
}

// Fields of a GPU (NVML_FI_DEV_…).
const (
	fieldMemoryTemperature = 82
	fieldLinkCount         = 91
	fieldPCIeCorrectable   = 173
	fieldPCIeNonFatal      = 179
	fieldPCIeFatal         = 180
	fieldRecoveryAction    = 230
)

// GPUFields are the quantities that are fields of a GPU, by field number.
func GPUFields() map[uint32]device.Quantity {
	return map[uint32]device.Quantity{
		fieldMemoryTemperature: device.TemperatureMemory, fieldLinkCount: device.LinkCount, fieldPCIeCorrectable: device.PCIeCorrectable,
		fieldPCIeNonFatal: device.PCIeNonFatal, fieldPCIeFatal: device.PCIeFatal, fieldRecoveryAction: device.RecoveryAction,
	}
}

// LinkFields are the numbers of a link that are fields, by field number.
func LinkFields() map[uint32]device.LinkQuantity {
	return map[uint32]device.LinkQuantity{
		138: device.LinkTransmitKiB, 139: device.LinkReceiveKiB, 202: device.LinkTransmit, 204: device.LinkReceive,
		208: device.LinkReceived, 211: device.LinkIntegrity, 215: device.LinkRecovered, 219: device.LinkEffective,
	}
}
