package gpu

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
)

// The two directions of traffic, as the GPU sees them.
const (
	Transmit = "transmit"
	Receive  = "receive"
)

// Point records data points of one GPU.
type Point struct {
	Builder
	At   pcommon.Timestamp
	PCI  string
	ID   string // hw.id
	Card *Card
}

// HWType is what all metrics are about.
const HWType = "gpu"

// Readings makes the metrics of all GPUs; of one that is lost its state alone.
func (c *Converter) Readings(cards *Cards, driver string, at time.Time) pmetric.Metrics {
	for _, one := range cards.all {
		p := &Point{Builder: c.Metrics, At: pcommon.NewTimestampFromTime(at), PCI: one.PCI, ID: one.UUID, Card: one}
		if p.ID == "" {
			p.ID = one.PCI
		}
		p.status()
		if one.gone {
			continue
		}
		for _, record := range []func(){p.recovery, p.busy, p.memory, p.heat, p.clocks, p.errors, p.pcie, p.links} {
			record()
		}
		c.More(p, driver)
	}
	return c.EmitMetrics()
}

// Has calls put with a quantity that the GPU has.
func (p *Point) Has(q nvml.Quantity, put func(uint64)) {
	if value, there := p.Card.now.Values[q]; there {
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
func failing(health []wire.Incident) bool {
	return slices.ContainsFunc(health, func(i wire.Incident) bool { return i.Failed })
}

// status says failed of a GPU that is lost, degraded of one for which the driver
// asks for a recovery action or whose memory cannot be repaired.
func (p *Point) status() {
	current, now := stateOK, &p.Card.now
	switch {
	case p.Card.gone:
		current = stateDown
	case now.ResetRequired || now.Values[nvml.RecoveryAction] != 0 || now.Values[nvml.RemapFailed] != 0 || failing(now.Health):
		current = stateReduced
	}
	for _, state := range []string{stateOK, stateReduced, stateDown} {
		p.RecordHwStatusDataPoint(p.At, bit(state == current), p.PCI, p.ID, HWType, state)
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recovery is what the driver asks for.
func (p *Point) recovery() {
	p.Has(nvml.RecoveryAction, func(n uint64) {
		action := "unknown"
		if names := nvml.RecoveryActions(); n < uint64(len(names)) {
			action = names[n]
		}
		p.RecordHwGpuRecoveryActionDataPoint(p.At, 1, p.PCI, p.ID, HWType, action)
	})
}

func (p *Point) busy() {
	for task, quantity := range map[string]nvml.Quantity{
		"general": nvml.UtilizationGPU, "encoder": nvml.UtilizationEncoder, "decoder": nvml.UtilizationDecoder,
	} {
		p.Has(quantity, func(n uint64) { p.RecordHwGpuUtilizationDataPoint(p.At, float64(n)/100, p.PCI, p.ID, HWType, task) })
	}
	p.Has(nvml.UtilizationMemory, func(n uint64) {
		p.RecordHwGpuMemoryControllerUtilizationDataPoint(p.At, float64(n)/100, p.PCI, p.ID, HWType)
	})
}

func (p *Point) memory() {
	p.Has(nvml.MemoryFree, func(n uint64) { p.RecordHwGpuMemoryFreeDataPoint(p.At, int64(n), p.PCI, p.ID, HWType) })
	p.Has(nvml.MemoryTotal, func(total uint64) {
		p.RecordHwGpuMemoryLimitDataPoint(p.At, int64(total), p.PCI, p.ID, HWType)
		p.Has(nvml.MemoryUsed, func(used uint64) {
			p.RecordHwGpuMemoryUsageDataPoint(p.At, int64(used), p.PCI, p.ID, HWType)
			if total > 0 {
				p.RecordHwGpuMemoryUtilizationDataPoint(p.At, float64(used)/float64(total), p.PCI, p.ID, HWType)
			}
		})
	})
	p.Has(nvml.RemapPending, func(n uint64) { p.RecordHwGpuMemoryRemapPendingDataPoint(p.At, int64(n), p.PCI, p.ID, HWType) })
	p.Has(nvml.RemapFailed, func(n uint64) { p.RecordHwGpuMemoryRemapFailedDataPoint(p.At, int64(n), p.PCI, p.ID, HWType) })
	for kind, quantity := range map[string]nvml.Quantity{nvml.ECCCorrected: nvml.RemappedCorrected, nvml.ECCUncorrected: nvml.RemappedUncorrected} {
		p.Has(quantity, func(n uint64) {
			p.RecordHwGpuMemoryRemappedRowsDataPoint(p.At, int64(n), p.PCI, p.ID, HWType, kind)
		})
	}
}

// heat is temperature and power: milliwatts and millijoules become watts and joules.
func (p *Point) heat() {
	p.Has(nvml.TemperatureGPU, func(n uint64) { p.RecordHwTemperatureDataPoint(p.At, float64(n), p.PCI, p.ID, HWType, "gpu") })
	p.Has(nvml.TemperatureMemory, func(n uint64) { p.RecordHwTemperatureDataPoint(p.At, float64(n), p.PCI, p.ID, HWType, "memory") })
	for limit, quantity := range map[string]nvml.Quantity{"throttled": nvml.TemperatureSlowdown, "critical": nvml.TemperatureShutdown} {
		p.Has(quantity, func(n uint64) {
			p.RecordHwTemperatureLimitDataPoint(p.At, float64(n), p.PCI, p.ID, HWType, limit, "gpu")
		})
	}
	p.Has(nvml.PowerUsage, func(n uint64) { p.RecordHwPowerDataPoint(p.At, float64(n)/1000, p.PCI, p.ID, HWType) })
	p.Has(nvml.PowerLimit, func(n uint64) { p.RecordHwPowerLimitDataPoint(p.At, float64(n)/1000, p.PCI, p.ID, HWType, "max") })
	p.Has(nvml.Energy, func(n uint64) { p.RecordHwEnergyDataPoint(p.At, float64(n)/1000, p.PCI, p.ID, HWType) })
}

func (p *Point) clocks() {
	const megahertz = 1_000_000
	for clock, q := range map[string][2]nvml.Quantity{
		"graphics": {nvml.ClockGraphics, nvml.ClockGraphicsMax}, "sm": {nvml.ClockSM, nvml.ClockSMMax},
		"memory": {nvml.ClockMemory, nvml.ClockMemoryMax}, "video": {nvml.ClockVideo, nvml.ClockVideoMax},
	} {
		p.Has(q[0], func(n uint64) { p.RecordHwGpuSpeedDataPoint(p.At, int64(n)*megahertz, p.PCI, p.ID, HWType, clock) })
		p.Has(q[1], func(n uint64) { p.RecordHwGpuSpeedLimitDataPoint(p.At, int64(n)*megahertz, p.PCI, p.ID, HWType, clock) })
	}
	for reason, seconds := range p.Card.slowed() {
		p.RecordHwGpuThrottleDurationDataPoint(p.At, seconds, p.PCI, p.ID, HWType, reason)
	}
}

// errors counts in hw.errors what one GPU has of each kind: memory errors since
// the driver was loaded and in all memories, those of its links together.
func (p *Point) errors() {
	for _, e := range p.Card.now.ECC {
		p.RecordHwGpuEccErrorsDataPoint(p.At, int64(e.Count), p.PCI, p.ID, HWType, e.Type, e.Lifetime, e.Location)
		if e.Lifetime == nvml.ECCVolatile && e.Location == nvml.ECCAll {
			p.RecordHwErrorsDataPoint(p.At, int64(e.Count), p.PCI, p.ID, HWType, e.Type)
		}
	}
	for kind, quantity := range map[string]nvml.Quantity{
		"pcie_replay": nvml.PCIeReplays, "pcie_correctable": nvml.PCIeCorrectable, "pcie_nonfatal": nvml.PCIeNonFatal, "pcie_fatal": nvml.PCIeFatal,
	} {
		p.Has(quantity, func(n uint64) { p.RecordHwErrorsDataPoint(p.At, int64(n), p.PCI, p.ID, HWType, kind) })
	}
	sum, any := int64(0), false
	for _, link := range p.Card.now.Links {
		for _, kind := range nvml.LinkErrorKinds() {
			if n, there := link.Values[kind]; there {
				p.RecordHwGpuNvlinkErrorsDataPoint(p.At, int64(n), p.PCI, p.ID, HWType, string(kind), int64(link.Number))
				sum, any = sum+int64(n), true
			}
		}
	}
	if any {
		p.RecordHwErrorsDataPoint(p.At, sum, p.PCI, p.ID, HWType, "nvlink")
	}
}

func (p *Point) pcie() {
	p.Has(nvml.PCIeTransmit, func(uint64) { p.RecordHwGpuIoDataPoint(p.At, int64(p.Card.sent), p.PCI, p.ID, HWType, Transmit) })
	p.Has(nvml.PCIeReceive, func(uint64) { p.RecordHwGpuIoDataPoint(p.At, int64(p.Card.received), p.PCI, p.ID, HWType, Receive) })
	p.Has(nvml.PCIeGeneration, func(n uint64) { p.RecordHwGpuPcieLinkGenerationDataPoint(p.At, int64(n), p.PCI, p.ID, HWType) })
	p.Has(nvml.PCIeWidth, func(width uint64) {
		p.RecordHwGpuPcieLinkWidthDataPoint(p.At, int64(width), p.PCI, p.ID, HWType)
		p.Has(nvml.PCIeWidthMax, func(most uint64) {
			if most > 0 {
				p.RecordHwGpuPcieLinkWidthRatioDataPoint(p.At, float64(width)/float64(most), p.PCI, p.ID, HWType)
			}
		})
	})
}

// links records state and traffic; KiB are of links before NVLink 5.
func (p *Point) links() {
	for _, link := range p.Card.now.Links {
		if active, there := link.Values[nvml.LinkState]; there {
			p.RecordHwGpuNvlinkUpDataPoint(p.At, int64(active), p.PCI, p.ID, HWType, int64(link.Number))
		}
		if n, there := p.traffic(link, Transmit, nvml.LinkTransmit, nvml.LinkTransmitKiB); there {
			p.RecordHwGpuNvlinkIoDataPoint(p.At, n, p.PCI, p.ID, HWType, int64(link.Number), Transmit)
		}
		if n, there := p.traffic(link, Receive, nvml.LinkReceive, nvml.LinkReceiveKiB); there {
			p.RecordHwGpuNvlinkIoDataPoint(p.At, n, p.PCI, p.ID, HWType, int64(link.Number), Receive)
		}
	}
}

// traffic is the bytes over a link: as the driver counts, else summed up.
func (p *Point) traffic(link wire.Link, direction string, bytes, kib nvml.LinkQuantity) (int64, bool) {
	if n, there := link.Values[bytes]; there {
		return int64(n), true
	}
	if n, there := link.Values[kib]; there {
		return int64(n) << 10, true
	}
	n, there := p.Card.Summed(link.Number, direction)
	return int64(n), there
}
