package dcgmreceiver

import (
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// newConverter gives the shared converter what mdatagen made for this receiver.
func newConverter(config *Config, settings receiver.Settings, meanings *catalogue.Catalogue, host record.Host) *gpu.Converter {
	logs, builder := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings)
	r := logs.NewResourceBuilder()
	host.Set(r.SetHostName, r.SetHostID, r.SetK8sNodeName)
	resource := r.Emit()
	return &gpu.Converter{Meanings: meanings, Makers: gpu.Makers{
		Events: map[string]bool{
			gpu.EventXid: config.Events.GpuXid.Enabled, gpu.EventLost: config.Events.GpuLost.Enabled,
			gpu.EventRecovered: config.Events.GpuRecovered.Enabled, gpu.EventECC: config.Events.GpuEcc.Enabled,
			gpu.EventHealth: config.Events.GpuHealth.Enabled, gpu.EventPolicy: config.Events.GpuPolicyViolation.Enabled,
		},
		AppendLog: logs.AppendLogRecord, EmitLogs: func() plog.Logs { return logs.Emit(metadata.WithLogsResource(resource)) },
		Metrics: builder, EmitMetrics: func() pmetric.Metrics { return builder.Emit(metadata.WithResource(resource)) },
		More: func(p *gpu.Point, driver string) {
			m := more{builder, p}
			m.info(driver)
			m.activity()
			m.traffic()
			m.retired()
			m.health()
		},
	}}
}

// option is an attribute of a metric that may be absent.
type option = gpu.Text[metadata.MetricAttributeOption]

// more records what DCGM has beside NVML's numbers.
type more struct {
	*metadata.MetricsBuilder
	*gpu.Point
}

func (m more) info(driver string) {
	options := gpu.Texts(
		option{Value: driver, With: metadata.WithHwDriverVersionMetricAttribute},
		option{Value: m.Card.VBIOS, With: metadata.WithHwFirmwareVersionMetricAttribute},
		option{Value: m.Card.Model, With: metadata.WithHwModelMetricAttribute},
		option{Value: m.Card.Serial, With: metadata.WithHwSerialNumberMetricAttribute},
		option{Value: m.Card.Computed, With: metadata.WithHwGpuComputeCapabilityMetricAttribute},
	)
	m.RecordHwGpuInfoDataPoint(m.At, 1, m.PCI, m.ID, gpu.HWType, int64(m.Card.Index), m.Card.MIGMode, gpu.Vendor, options...)
}

// activity is what the profiling module measures.
func (m more) activity() {
	for part, share := range m.Card.Now().Ratios {
		if part == dcgm.Occupancy {
			m.RecordHwGpuSmOccupancyDataPoint(m.At, share, m.PCI, m.ID, gpu.HWType)
			continue
		}
		m.RecordHwGpuActivityDataPoint(m.At, share, m.PCI, m.ID, gpu.HWType, part)
	}
}

func (m more) traffic() {
	for _, direction := range []string{gpu.Transmit, gpu.Receive} {
		if bytes, there := m.Card.Summed(gpu.AllLinks, direction); there {
			m.RecordHwGpuNvlinkTotalIoDataPoint(m.At, int64(bytes), m.PCI, m.ID, gpu.HWType, direction)
		}
	}
}

func (m more) retired() {
	for kind, quantity := range map[string]nvml.Quantity{nvml.ECCCorrected: nvml.RetiredCorrected, nvml.ECCUncorrected: nvml.RetiredUncorrected} {
		m.Has(quantity, func(n uint64) {
			m.RecordHwGpuMemoryRetiredPagesDataPoint(m.At, int64(n), m.PCI, m.ID, gpu.HWType, kind)
		})
	}
	m.Has(nvml.RetirePending, func(n uint64) { m.RecordHwGpuMemoryRetirePendingDataPoint(m.At, int64(n), m.PCI, m.ID, gpu.HWType) })
}

// health has a point for each watch, so that one that was ill is seen to be well.
func (m more) health() {
	now := m.Card.Now()
	if !now.HealthKnown {
		return
	}
	worst := map[string]int64{}
	for _, system := range dcgm.Systems() {
		worst[system] = 0
	}
	for _, i := range now.Health {
		worst[i.System] = max(worst[i.System], 1)
		if i.Failed {
			worst[i.System] = 2
		}
	}
	for system, value := range worst {
		m.RecordHwGpuHealthDataPoint(m.At, value, m.PCI, m.ID, gpu.HWType, system)
	}
}
