package gpureceiver

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/inventory"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// point records data points of one GPU.
type point struct {
	*metadata.MetricsBuilder
	at  pcommon.Timestamp
	pci string
	id  string // hw.id
	gpu *inventory.GPU
}

// hwType is what all metrics are about.
const hwType = "gpu"

// readings makes the metrics of all GPUs; of one that is lost its state alone.
func (c *converter) readings(gpus *inventory.Inventory, driver string, at time.Time) pmetric.Metrics {
	for _, gpu := range gpus.All() {
		p := &point{MetricsBuilder: c.metrics, at: pcommon.NewTimestampFromTime(at), pci: gpu.PCI, id: gpu.UUID, gpu: gpu}
		if p.id == "" {
			p.id = gpu.PCI
		}
		p.status()
		if gpu.Lost {
			continue
		}
		p.info(driver)
		p.processes(func(pid uint32) identity.Process { return c.process(pid, at) })
		for _, put := range []func(){
			p.recovery, p.busy, p.activity, p.memory, p.retired, p.divisions, p.heat, p.clocks, p.errors, p.health, p.pcie, p.links,
		} {
			put()
		}
	}
	resource := pcommon.NewResource()
	c.logs.Resource().CopyTo(resource)
	record.TrustAttributesOn(record.On(resource.Attributes())).TracecoreTrust(string(record.Proven)) // as each record has it
	return c.metrics.Emit(metadata.WithResource(resource))
}

// text is an attribute of a metric that is there when its value is known.
type text struct {
	value string
	with  func(string) metadata.MetricAttributeOption
}

// texts are the options of those that are known.
func texts(all ...text) []metadata.MetricAttributeOption {
	var options []metadata.MetricAttributeOption
	for _, one := range all {
		if one.value != "" {
			options = append(options, one.with(one.value))
		}
	}
	return options
}

// info says who the GPU is.
func (p *point) info(driver string) {
	options := texts(
		text{driver, metadata.WithHwDriverVersionMetricAttribute},
		text{p.gpu.VBIOS, metadata.WithHwFirmwareVersionMetricAttribute},
		text{p.gpu.Model, metadata.WithHwModelMetricAttribute},
		text{p.gpu.Serial, metadata.WithHwSerialNumberMetricAttribute},
		text{p.gpu.Computed, metadata.WithHwGpuComputeCapabilityMetricAttribute},
	)
	p.RecordHwGpuInfoDataPoint(p.at, 1, p.pci, p.id, hwType, int64(p.gpu.Index), p.gpu.MIGMode, vendor, options...)
}

// has calls put with a quantity that the GPU has.
func (p *point) has(q device.Quantity, put func(uint64)) {
	if value, there := p.gpu.Latest.Values[q]; there {
		put(value)
	}
}

// The states of hw.status.
const (
	stateOK      = "ok"
	stateReduced = "degraded"
	stateDown    = "failed"
)

// failing reports whether the library's own watches find a failure.
func failing(health []protocol.Incident) bool {
	return slices.ContainsFunc(health, func(i protocol.Incident) bool { return i.Failed })
}

// status says failed of a GPU that is lost, degraded of one for which the driver
// asks for a recovery action or whose memory cannot be repaired.
func (p *point) status() {
	current, now := stateOK, &p.gpu.Latest
	switch {
	case p.gpu.Lost:
		current = stateDown
	case now.ResetRequired || now.Values[device.RecoveryAction] != 0 || now.Values[device.RemapFailed] != 0 || failing(now.Health):
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

// recovery is what the driver asks for.
func (p *point) recovery() {
	p.has(device.RecoveryAction, func(n uint64) {
		action := "unknown"
		if names := device.RecoveryActions(); n < uint64(len(names)) {
			action = names[n]
		}
		p.RecordHwGpuRecoveryActionDataPoint(p.at, 1, p.pci, p.id, hwType, action)
	})
}

func (p *point) busy() {
	for task, quantity := range map[string]device.Quantity{
		"general": device.UtilizationGPU, "encoder": device.UtilizationEncoder, "decoder": device.UtilizationDecoder,
	} {
		p.has(quantity, func(n uint64) { p.RecordHwGpuUtilizationDataPoint(p.at, float64(n)/100, p.pci, p.id, hwType, task) })
	}
	p.has(device.UtilizationMemory, func(n uint64) {
		p.RecordHwGpuMemoryControllerUtilizationDataPoint(p.at, float64(n)/100, p.pci, p.id, hwType)
	})
}

func (p *point) memory() {
	p.has(device.MemoryFree, func(n uint64) { p.RecordHwGpuMemoryFreeDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	p.has(device.MemoryTotal, func(total uint64) {
		p.RecordHwGpuMemoryLimitDataPoint(p.at, int64(total), p.pci, p.id, hwType)
		p.has(device.MemoryUsed, func(used uint64) {
			p.RecordHwGpuMemoryUsageDataPoint(p.at, int64(used), p.pci, p.id, hwType)
			if total > 0 {
				p.RecordHwGpuMemoryUtilizationDataPoint(p.at, float64(used)/float64(total), p.pci, p.id, hwType)
			}
		})
	})
	p.has(device.RemapPending, func(n uint64) { p.RecordHwGpuMemoryRemapPendingDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	p.has(device.RemapFailed, func(n uint64) { p.RecordHwGpuMemoryRemapFailedDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	for kind, quantity := range map[string]device.Quantity{device.ECCCorrected: device.RemappedCorrected, device.ECCUncorrected: device.RemappedUncorrected} {
		p.has(quantity, func(n uint64) {
			p.RecordHwGpuMemoryRemappedRowsDataPoint(p.at, int64(n), p.pci, p.id, hwType, kind)
		})
	}
}

// heat is temperature and power: milliwatts and millijoules become watts and joules.
func (p *point) heat() {
	p.has(device.TemperatureGPU, func(n uint64) { p.RecordHwTemperatureDataPoint(p.at, float64(n), p.pci, p.id, hwType, "gpu") })
	p.has(device.TemperatureMemory, func(n uint64) { p.RecordHwTemperatureDataPoint(p.at, float64(n), p.pci, p.id, hwType, "memory") })
	for limit, quantity := range map[string]device.Quantity{"throttled": device.TemperatureSlowdown, "critical": device.TemperatureShutdown} {
		p.has(quantity, func(n uint64) {
			p.RecordHwTemperatureLimitDataPoint(p.at, float64(n), p.pci, p.id, hwType, limit, "gpu")
		})
	}
	p.has(device.PowerUsage, func(n uint64) { p.RecordHwPowerDataPoint(p.at, float64(n)/1000, p.pci, p.id, hwType) })
	p.has(device.PowerLimit, func(n uint64) { p.RecordHwPowerLimitDataPoint(p.at, float64(n)/1000, p.pci, p.id, hwType, "max") })
	p.has(device.Energy, func(n uint64) { p.RecordHwEnergyDataPoint(p.at, float64(n)/1000, p.pci, p.id, hwType) })
}

func (p *point) clocks() {
	const megahertz = 1_000_000
	for clock, q := range map[string][2]device.Quantity{
		"graphics": {device.ClockGraphics, device.ClockGraphicsMax}, "sm": {device.ClockSM, device.ClockSMMax},
		"memory": {device.ClockMemory, device.ClockMemoryMax}, "video": {device.ClockVideo, device.ClockVideoMax},
	} {
		p.has(q[0], func(n uint64) { p.RecordHwGpuSpeedDataPoint(p.at, int64(n)*megahertz, p.pci, p.id, hwType, clock) })
		p.has(q[1], func(n uint64) { p.RecordHwGpuSpeedLimitDataPoint(p.at, int64(n)*megahertz, p.pci, p.id, hwType, clock) })
	}
	for reason, seconds := range p.gpu.Throttled() {
		p.RecordHwGpuThrottleDurationDataPoint(p.at, seconds, p.pci, p.id, hwType, reason)
	}
}

// errors counts in hw.errors what one GPU has of each kind: memory errors since
// the driver was loaded and in all memories, those of its links together.
func (p *point) errors() {
	for _, e := range p.gpu.Latest.ECC {
		p.RecordHwGpuEccErrorsDataPoint(p.at, int64(e.Count), p.pci, p.id, hwType, e.Type, e.Lifetime, e.Location)
		if e.Lifetime == device.ECCVolatile && e.Location == device.ECCAll {
			p.RecordHwErrorsDataPoint(p.at, int64(e.Count), p.pci, p.id, hwType, e.Type)
		}
	}
	for kind, quantity := range map[string]device.Quantity{
		"pcie_replay": device.PCIeReplays, "pcie_correctable": device.PCIeCorrectable, "pcie_nonfatal": device.PCIeNonFatal, "pcie_fatal": device.PCIeFatal,
	} {
		p.has(quantity, func(n uint64) { p.RecordHwErrorsDataPoint(p.at, int64(n), p.pci, p.id, hwType, kind) })
	}
	any := false
	for _, link := range p.gpu.Latest.Links {
		for _, kind := range device.LinkErrorKinds() {
			if n, there := link.Values[kind]; there {
				p.RecordHwGpuNvlinkErrorsDataPoint(p.at, int64(n), p.pci, p.id, hwType, string(kind), int64(link.Number))
				any = true
			}
		}
	}
	if any {
		p.RecordHwErrorsDataPoint(p.at, p.gpu.LinkErrors(), p.pci, p.id, hwType, "nvlink")
	}
}

func (p *point) pcie() {
	p.has(device.PCIeTransmit, func(uint64) {
		p.RecordHwGpuIoDataPoint(p.at, int64(p.gpu.PCIeBytes(inventory.Transmit)), p.pci, p.id, hwType, string(inventory.Transmit))
	})
	p.has(device.PCIeReceive, func(uint64) {
		p.RecordHwGpuIoDataPoint(p.at, int64(p.gpu.PCIeBytes(inventory.Receive)), p.pci, p.id, hwType, string(inventory.Receive))
	})
	p.has(device.PCIeGeneration, func(n uint64) { p.RecordHwGpuPcieLinkGenerationDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
	p.has(device.PCIeWidth, func(width uint64) {
		p.RecordHwGpuPcieLinkWidthDataPoint(p.at, int64(width), p.pci, p.id, hwType)
		p.has(device.PCIeWidthMax, func(most uint64) {
			if most > 0 {
				p.RecordHwGpuPcieLinkWidthRatioDataPoint(p.at, float64(width)/float64(most), p.pci, p.id, hwType)
			}
		})
	})
}

// links records state and traffic.
func (p *point) links() {
	for _, link := range p.gpu.Latest.Links {
		if active, there := link.Values[device.LinkState]; there {
			p.RecordHwGpuNvlinkUpDataPoint(p.at, int64(active), p.pci, p.id, hwType, int64(link.Number))
		}
		for _, direction := range []inventory.Direction{inventory.Transmit, inventory.Receive} {
			if bytes, any := p.gpu.LinkBytes(link, direction); any {
				p.RecordHwGpuNvlinkIoDataPoint(p.at, int64(bytes), p.pci, p.id, hwType, int64(link.Number), string(direction))
			}
		}
	}
	for _, direction := range []inventory.Direction{inventory.Transmit, inventory.Receive} {
		if bytes, any := p.gpu.NVLinkBytes(direction); any {
			p.RecordHwGpuNvlinkTotalIoDataPoint(p.at, int64(bytes), p.pci, p.id, hwType, string(direction))
		}
	}
}
