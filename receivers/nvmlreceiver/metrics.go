package nvmlreceiver

import (
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/nvml"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/wire"
)

// hwType is what all metrics are about.
const hwType = "gpu"

// The two directions of traffic, as the GPU sees them.
const (
	transmit = "transmit"
	receive  = "receive"
)

// points records data points of one GPU.
type points struct {
	*metadata.MetricsBuilder
	at   pcommon.Timestamp
	pci  string
	id   string // hw.id
	card *card
}

// metrics makes the metrics of all GPUs; of one that is lost its state alone.
func (c *converter) metrics(cards *cards, driver string, at time.Time) pmetric.Metrics {
	for _, one := range cards.all {
		p := &points{MetricsBuilder: c.builder, at: pcommon.NewTimestampFromTime(at), pci: one.PCI, id: one.UUID, card: one}
		if p.id == "" {
			p.id = one.PCI
		}
		p.status()
		if one.gone {
			continue
		}
		p.info(driver)
		p.busy()
		p.memory()
		p.heat()
		p.clocks()
		p.errors()
		p.pcie()
		p.links()
		p.parts()
		p.processes(func(pid uint32) identity.Process { return c.process(pid, at) })
	}
	return c.builder.Emit(metadata.WithResource(c.resource))
}

// has calls put with a quantity that the GPU has.
func (p *points) has(q nvml.Quantity, put func(uint64)) {
	if value, there := p.card.now.Values[q]; there {
		put(value)
	}
}

// The states of hw.status.
const (
	stateOK      = "ok"
	stateReduced = "degraded"
	stateDown    = "failed"
)

// status says failed of a GPU that is lost, degraded of one for which the driver
// asks for a recovery action or whose memory cannot be repaired.
func (p *points) status() {
	current, now := stateOK, &p.card.now
	switch {
	case p.card.gone:
		current = stateDown
	case now.ResetRequired || now.Values[nvml.RecoveryAction] != 0 || now.Values[nvml.RemapFailed] != 0:
		current = stateReduced
	}
	for _, state := range []string{stateOK, stateReduced, stateDown} {
		p.RecordHwStatusDataPoint(p.at, bit(state == current), p.pci, p.id, hwType, state)
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (p *points) info(driver string) {
	var options []metadata.MetricAttributeOption
	for _, text := range []struct {
		value string
		with  func(string) metadata.MetricAttributeOption
	}{
		{driver, metadata.WithHwDriverVersionMetricAttribute}, {p.card.VBIOS, metadata.WithHwFirmwareVersionMetricAttribute},
		{p.card.Model, metadata.WithHwModelMetricAttribute}, {p.card.Serial, metadata.WithHwSerialNumberMetricAttribute},
		{p.card.Computed, metadata.WithHwGpuComputeCapabilityMetricAttribute},
	} {
		if text.value != "" {
			options = append(options, text.with(text.value))
		}
	}
	p.RecordHwGpuInfoDataPoint(p.at, 1, p.pci, p.id, hwType, int64(p.card.Index), p.card.MIGMode, vendor, options...)
	p.has(nvml.RecoveryAction, func(n uint64) {
		action := "unknown"
		if names := nvml.RecoveryActions(); n < uint64(len(names)) {
			action = names[n]
		}
		p.RecordHwGpuRecoveryActionDataPoint(p.at, 1, p.pci, p.id, hwType, action)
	})
}

func (p *points) busy() {
	for task, quantity := range map[string]nvml.Quantity{
		"general": nvml.UtilizationGPU, "encoder": nvml.UtilizationEncoder, "decoder": nvml.UtilizationDecoder,
	} {
		p.has(quantity, func(n uint64) { p.RecordHwGpuUtilizationDataPoint(p.at, float64(n)/100, p.pci, p.id, hwType, task) })
	}
	p.has(nvml.UtilizationMemory, func(n uint64) {
		p.RecordHwGpuMemoryControllerUtilizationDataPoint(p.at, float64(n)/100, p.pci, p.id, hwType)
	})
}

func (p *points) memory() {
	p.has(nvml.MemoryFree, func(n uint64) { p.RecordHwGpuMemoryFreeDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	p.has(nvml.MemoryTotal, func(total uint64) {
		p.RecordHwGpuMemoryLimitDataPoint(p.at, int64(total), p.pci, p.id, hwType)
		p.has(nvml.MemoryUsed, func(used uint64) {
			p.RecordHwGpuMemoryUsageDataPoint(p.at, int64(used), p.pci, p.id, hwType)
			if total > 0 {
				p.RecordHwGpuMemoryUtilizationDataPoint(p.at, float64(used)/float64(total), p.pci, p.id, hwType)
			}
		})
	})
	p.has(nvml.RemapPending, func(n uint64) { p.RecordHwGpuMemoryRemapPendingDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	p.has(nvml.RemapFailed, func(n uint64) { p.RecordHwGpuMemoryRemapFailedDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	for kind, quantity := range map[string]nvml.Quantity{nvml.ECCCorrected: nvml.RemappedCorrected, nvml.ECCUncorrected: nvml.RemappedUncorrected} {
		p.has(quantity, func(n uint64) {
			p.RecordHwGpuMemoryRemappedRowsDataPoint(p.at, int64(n), p.pci, p.id, hwType, kind)
		})
	}
}

// heat is temperature and power: milliwatts and millijoules become watts and joules.
func (p *points) heat() {
	p.has(nvml.TemperatureGPU, func(n uint64) { p.RecordHwTemperatureDataPoint(p.at, float64(n), p.pci, p.id, hwType, "gpu") })
	p.has(nvml.TemperatureMemory, func(n uint64) { p.RecordHwTemperatureDataPoint(p.at, float64(n), p.pci, p.id, hwType, "memory") })
	for limit, quantity := range map[string]nvml.Quantity{"throttled": nvml.TemperatureSlowdown, "critical": nvml.TemperatureShutdown} {
		p.has(quantity, func(n uint64) {
			p.RecordHwTemperatureLimitDataPoint(p.at, float64(n), p.pci, p.id, hwType, limit, "gpu")
		})
	}
	p.has(nvml.PowerUsage, func(n uint64) { p.RecordHwPowerDataPoint(p.at, float64(n)/1000, p.pci, p.id, hwType) })
	p.has(nvml.PowerLimit, func(n uint64) { p.RecordHwPowerLimitDataPoint(p.at, float64(n)/1000, p.pci, p.id, hwType, "max") })
	p.has(nvml.Energy, func(n uint64) { p.RecordHwEnergyDataPoint(p.at, float64(n)/1000, p.pci, p.id, hwType) })
}

func (p *points) clocks() {
	const megahertz = 1_000_000
	for clock, q := range map[string][2]nvml.Quantity{
		"graphics": {nvml.ClockGraphics, nvml.ClockGraphicsMax}, "sm": {nvml.ClockSM, nvml.ClockSMMax},
		"memory": {nvml.ClockMemory, nvml.ClockMemoryMax}, "video": {nvml.ClockVideo, nvml.ClockVideoMax},
	} {
		p.has(q[0], func(n uint64) { p.RecordHwGpuSpeedDataPoint(p.at, int64(n)*megahertz, p.pci, p.id, hwType, clock) })
		p.has(q[1], func(n uint64) { p.RecordHwGpuSpeedLimitDataPoint(p.at, int64(n)*megahertz, p.pci, p.id, hwType, clock) })
	}
	for reason, seconds := range p.card.slowed() {
		p.RecordHwGpuThrottleDurationDataPoint(p.at, seconds, p.pci, p.id, hwType, reason)
	}
}

// errors counts in hw.errors what one GPU has of each kind: memory errors since
// the driver was loaded and in all memories, those of its links together.
func (p *points) errors() {
	for _, e := range p.card.now.ECC {
		p.RecordHwGpuEccErrorsDataPoint(p.at, int64(e.Count), p.pci, p.id, hwType, e.Type, e.Lifetime, e.Location)
		if e.Lifetime == nvml.ECCVolatile && e.Location == nvml.ECCAll {
			p.RecordHwErrorsDataPoint(p.at, int64(e.Count), p.pci, p.id, hwType, e.Type)
		}
	}
	for kind, quantity := range map[string]nvml.Quantity{
		"pcie_replay": nvml.PCIeReplays, "pcie_correctable": nvml.PCIeCorrectable, "pcie_nonfatal": nvml.PCIeNonFatal, "pcie_fatal": nvml.PCIeFatal,
	} {
		p.has(quantity, func(n uint64) { p.RecordHwErrorsDataPoint(p.at, int64(n), p.pci, p.id, hwType, kind) })
	}
	sum, any := int64(0), false
	for _, link := range p.card.now.Links {
		for _, kind := range nvml.LinkErrorKinds() {
			if n, there := link.Values[kind]; there {
				p.RecordHwGpuNvlinkErrorsDataPoint(p.at, int64(n), p.pci, p.id, hwType, string(kind), int64(link.Number))
				sum, any = sum+int64(n), true
			}
		}
	}
	if any {
		p.RecordHwErrorsDataPoint(p.at, sum, p.pci, p.id, hwType, "nvlink")
	}
}

func (p *points) pcie() {
	p.has(nvml.PCIeTransmit, func(uint64) { p.RecordHwGpuIoDataPoint(p.at, int64(p.card.sent), p.pci, p.id, hwType, transmit) })
	p.has(nvml.PCIeReceive, func(uint64) { p.RecordHwGpuIoDataPoint(p.at, int64(p.card.received), p.pci, p.id, hwType, receive) })
	p.has(nvml.PCIeGeneration, func(n uint64) { p.RecordHwGpuPcieLinkGenerationDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	p.has(nvml.PCIeWidth, func(width uint64) {
		p.RecordHwGpuPcieLinkWidthDataPoint(p.at, int64(width), p.pci, p.id, hwType)
		p.has(nvml.PCIeWidthMax, func(most uint64) {
			if most > 0 {
				p.RecordHwGpuPcieLinkWidthRatioDataPoint(p.at, float64(width)/float64(most), p.pci, p.id, hwType)
			}
		})
	})
}

// links records state and traffic; KiB are of links before NVLink 5.
func (p *points) links() {
	for _, link := range p.card.now.Links {
		if active, there := link.Values[nvml.LinkState]; there {
			p.RecordHwGpuNvlinkUpDataPoint(p.at, int64(active), p.pci, p.id, hwType, int64(link.Number))
		}
		if n, there := traffic(link, nvml.LinkTransmit, nvml.LinkTransmitKiB); there {
			p.RecordHwGpuNvlinkIoDataPoint(p.at, n, p.pci, p.id, hwType, int64(link.Number), transmit)
		}
		if n, there := traffic(link, nvml.LinkReceive, nvml.LinkReceiveKiB); there {
			p.RecordHwGpuNvlinkIoDataPoint(p.at, n, p.pci, p.id, hwType, int64(link.Number), receive)
		}
	}
}

func traffic(link wire.Link, bytes, kib nvml.LinkQuantity) (int64, bool) {
	if n, there := link.Values[bytes]; there {
		return int64(n), true
	}
	n, there := link.Values[kib]
	return int64(n) << 10, there
}

// parts records MIG devices.
func (p *points) parts() {
	for _, part := range p.card.now.MIG {
		options := []metadata.MetricAttributeOption{
			metadata.WithGpuMigGpuInstanceIDMetricAttribute(int64(part.GPUInstance)),
			metadata.WithGpuMigComputeInstanceIDMetricAttribute(int64(part.ComputeInstance)),
		}
		id := part.UUID
		if id == "" {
			id = p.id + "/" + strconv.Itoa(part.GPUInstance)
		}
		p.RecordHwGpuMigMemoryLimitDataPoint(p.at, int64(part.MemoryTotal), p.pci, id, hwType, options...)
		p.RecordHwGpuMigMemoryUsageDataPoint(p.at, int64(part.MemoryUsed), p.pci, id, hwType, options...)
	}
}

// processes records who holds how much memory.
func (p *points) processes(who func(uint32) identity.Process) {
	for _, process := range p.card.now.Processes {
		if process.MemoryKnown {
			p.RecordHwGpuProcessMemoryUsageDataPoint(p.at, int64(process.UsedMemory), p.pci, p.id, hwType, processOptions(who(process.PID))...)
		}
	}
}

func processOptions(who identity.Process) []metadata.MetricAttributeOption {
	options := []metadata.MetricAttributeOption{metadata.WithProcessPidMetricAttribute(int64(who.PID))}
	for _, text := range []struct {
		value string
		with  func(string) metadata.MetricAttributeOption
	}{
		{who.Comm, metadata.WithProcessExecutableNameMetricAttribute}, {who.ContainerID, metadata.WithContainerIDMetricAttribute},
		{who.PodUID, metadata.WithK8sPodUIDMetricAttribute}, {who.JobID, metadata.WithGenAiTrainingJobIDMetricAttribute},
	} {
		if text.value != "" {
			options = append(options, text.with(text.value))
		}
	}
	for _, number := range []struct {
		value int
		with  func(int64) metadata.MetricAttributeOption
	}{
		{who.Rank, metadata.WithGenAiTrainingRankMetricAttribute}, {who.LocalRank, metadata.WithGenAiTrainingLocalRankMetricAttribute},
		{who.WorldSize, metadata.WithGenAiTrainingWorldSizeMetricAttribute},
	} {
		if number.value > identity.Unknown {
			options = append(options, number.with(int64(number.value)))
		}
	}
	return options
}
