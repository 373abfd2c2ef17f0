package device

// Quantity is one number of a GPU. The names travel between the helper program and
// the receiver.
type Quantity string

// The quantities, each with its unit.
const (
	UtilizationGPU     Quantity = "utilization_gpu"     // per cent of the last sample period
	UtilizationMemory  Quantity = "utilization_memory"  // per cent of time in which memory was read or written
	UtilizationEncoder Quantity = "utilization_encoder" // per cent
	UtilizationDecoder Quantity = "utilization_decoder" // per cent

	MemoryTotal    Quantity = "memory_total" // bytes
	MemoryUsed     Quantity = "memory_used"  // bytes, without what is reserved
	MemoryFree     Quantity = "memory_free"  // bytes
	MemoryReserved Quantity = "memory_reserved"

	TemperatureGPU      Quantity = "temperature_gpu"      // degrees Celsius
	TemperatureMemory   Quantity = "temperature_memory"   // degrees Celsius
	TemperatureSlowdown Quantity = "temperature_slowdown" // where the hardware slows down
	TemperatureShutdown Quantity = "temperature_shutdown"

	PowerUsage Quantity = "power_usage" // milliwatts
	PowerLimit Quantity = "power_limit" // milliwatts, the one that is enforced
	Energy     Quantity = "energy"      // millijoules since the driver was loaded

	ClockGraphics    Quantity = "clock_graphics" // MHz
	ClockSM          Quantity = "clock_sm"
	ClockMemory      Quantity = "clock_memory"
	ClockVideo       Quantity = "clock_video"
	ClockGraphicsMax Quantity = "clock_graphics_max"
	ClockSMMax       Quantity = "clock_sm_max"
	ClockMemoryMax   Quantity = "clock_memory_max"
	ClockVideoMax    Quantity = "clock_video_max"

	ThrottleActive Quantity = "throttle_active" // bits: reasons that hold the clocks down now

	RemappedCorrected   Quantity = "remapped_corrected" // rows
	RemappedUncorrected Quantity = "remapped_uncorrected"
	RemapPending        Quantity = "remap_pending" // 1: rows wait for a reset
	RemapFailed         Quantity = "remap_failed"  // 1: a row could not be remapped

	PCIeWidth          Quantity = "pcie_width" // lanes
	PCIeWidthMax       Quantity = "pcie_width_max"
	PCIeGeneration     Quantity = "pcie_generation"
	PCIeGenerationMax  Quantity = "pcie_generation_max"
	PCIeReplays        Quantity = "pcie_replays"
	PCIeTransmit       Quantity = "pcie_transmit" // KB/s, mean of the last 20 ms
	PCIeReceive        Quantity = "pcie_receive"
	NVLinkTransmit     Quantity = "nvlink_transmit" // bytes/s over all links; DCGM alone
	NVLinkReceive      Quantity = "nvlink_receive"
	RetiredCorrected   Quantity = "retired_corrected" // pages, before Ampere
	RetiredUncorrected Quantity = "retired_uncorrected"
	RetirePending      Quantity = "retire_pending"

	PCIeCorrectable Quantity = "pcie_correctable"
	PCIeNonFatal    Quantity = "pcie_nonfatal"
	PCIeFatal       Quantity = "pcie_fatal"
	RecoveryAction  Quantity = "recovery_action"
	LinkCount       Quantity = "nvlink_count"
)

// ThrottleReason is why clocks are held down.
type ThrottleReason struct {
	Name  string
	Field uint32 // counts the nanoseconds
	Bit   uint64 // in ThrottleActive; 0: none
}

// The reasons that are heat. ThermalBoth counts software and hardware slowdown
// together, on drivers that do not count them apart.
const (
	ThermalBoth     = "thermal"
	ThermalSoftware = "sw_thermal_slowdown"
	ThermalHardware = "hw_thermal_slowdown"
)

// ThrottleReasons lists the reasons: counters NVML_FI_DEV_PERF_POLICY_… and
// NVML_FI_DEV_CLOCKS_EVENT_REASON_… in nanoseconds, bits nvmlClocksEventReason….
// Only newer drivers have 269 to 271.
func ThrottleReasons() []ThrottleReason {
	return []ThrottleReason{
		{Name: "sw_power_cap", Field: 74, Bit: 0x4},
		{Name: ThermalBoth, Field: 75},
		{Name: "sync_boost", Field: 76, Bit: 0x10},
		{Name: "board_limit", Field: 77},
		{Name: "low_utilization", Field: 78},
		{Name: "reliability", Field: 79},
		{Name: ThermalSoftware, Field: 269, Bit: 0x20},
		{Name: ThermalHardware, Field: 270, Bit: 0x40},
		{Name: "hw_power_brake_slowdown", Field: 271, Bit: 0x80},
	}
}

// MaxLinks is how many NVLinks a GPU can have (NVML_NVLINK_MAX_LINKS).
const MaxLinks = 36

// LinkQuantity is one number of a link.
type LinkQuantity string

// The numbers of a link.
const (
	LinkState       LinkQuantity = "state"        // 1: active
	LinkTransmitKiB LinkQuantity = "transmit_kib" // NVLink 1 to 4
	LinkReceiveKiB  LinkQuantity = "receive_kib"
	LinkTransmit    LinkQuantity = "transmit_bytes" // NVLink 5
	LinkReceive     LinkQuantity = "receive_bytes"

	LinkTransmitRate LinkQuantity = "transmit_rate" // bytes/s; DCGM alone
	LinkReceiveRate  LinkQuantity = "receive_rate"

	LinkReplay    LinkQuantity = "replay" // errors, NVLink 1 to 4
	LinkRecovery  LinkQuantity = "recovery"
	LinkCRCFlit   LinkQuantity = "crc_flit"
	LinkCRCData   LinkQuantity = "crc_data"
	LinkReceived  LinkQuantity = "receive" // errors, NVLink 5
	LinkIntegrity LinkQuantity = "local_link_integrity"
	LinkRecovered LinkQuantity = "link_recovery"
	LinkEffective LinkQuantity = "effective"
)

// LinkCounters are the error counters that have a call of their own, in the
// order of nvmlNvLinkErrorCounter_t.
func LinkCounters() []LinkQuantity {
	return []LinkQuantity{LinkReplay, LinkRecovery, LinkCRCFlit, LinkCRCData}
}

// LinkErrorKinds lists what counts as an error of a link.
func LinkErrorKinds() []LinkQuantity {
	return append(LinkCounters(), LinkReceived, LinkIntegrity, LinkRecovered, LinkEffective)
}

// ECCCounter names a counter of memory errors.
type ECCCounter struct {
	Type     string `json:"type"`     // corrected, uncorrected
	Lifetime string `json:"lifetime"` // volatile: since the driver was loaded; aggregate: of the GPU's life
	Location string `json:"location"` // all, dram, sram
}

// The words of an ECCCounter.
const (
	ECCCorrected   = "corrected"
	ECCUncorrected = "uncorrected"
	ECCVolatile    = "volatile"
	ECCAggregate   = "aggregate"
	ECCAll         = "all"
	ECCDRAM        = "dram"
	ECCSRAM        = "sram"
)

// ECCCounters lists the counters.
func ECCCounters() []ECCCounter {
	var counters []ECCCounter
	for _, location := range []string{ECCAll, ECCDRAM, ECCSRAM} {
		for _, lifetime := range []string{ECCVolatile, ECCAggregate} {
			counters = append(counters, ECCCounter{ECCCorrected, lifetime, location}, ECCCounter{ECCUncorrected, lifetime, location})
		}
	}
	return counters
}

// RecoveryActions are the values of RecoveryAction (nvmlDeviceGpuRecoveryAction_t),
// in the words of Xid 154's attribute.
func RecoveryActions() []string {
	return []string{"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain"}
}
