package nvmlreceiver

import (
	"strconv"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

// newConverter gives the shared converter what mdatagen made for this receiver.
func newConverter(config *Config, settings receiver.Settings, meanings *catalogue.Catalogue, host record.Host) *gpu.Converter {
	logs, builder := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings)
	r := logs.NewResourceBuilder()
	host.Set(r.SetHostName, r.SetHostID, r.SetK8sNodeName)
	resource := r.Emit()
	c := &gpu.Converter{Meanings: meanings}
	c.Makers = gpu.Makers{
		Events: map[string]bool{
			gpu.EventXid: config.Events.GpuXid.Enabled, gpu.EventLost: config.Events.GpuLost.Enabled,
			gpu.EventRecovered: config.Events.GpuRecovered.Enabled, gpu.EventECC: config.Events.GpuEcc.Enabled,
			gpu.EventClock: config.Events.GpuClockChange.Enabled,
		},
		AppendLog: logs.AppendLogRecord, EmitLogs: func() plog.Logs { return logs.Emit(metadata.WithLogsResource(resource)) },
		Metrics: builder, EmitMetrics: func() pmetric.Metrics { return builder.Emit(metadata.WithResource(resource)) },
		More: func(p *gpu.Point, driver string) {
			info(builder, p, driver)
			divisions(builder, p)
			processes(builder, p, func(pid uint32) identity.Process { return c.Process(pid, p.At.AsTime()) })
		},
	}
	return c
}

// option is an attribute of a metric that may be absent.
type option = gpu.Text[metadata.MetricAttributeOption]

func info(b *metadata.MetricsBuilder, p *gpu.Point, driver string) {
	options := gpu.Texts(
		option{Value: driver, With: metadata.WithHwDriverVersionMetricAttribute},
		option{Value: p.Card.VBIOS, With: metadata.WithHwFirmwareVersionMetricAttribute},
		option{Value: p.Card.Model, With: metadata.WithHwModelMetricAttribute},
		option{Value: p.Card.Serial, With: metadata.WithHwSerialNumberMetricAttribute},
		option{Value: p.Card.Computed, With: metadata.WithHwGpuComputeCapabilityMetricAttribute},
	)
	b.RecordHwGpuInfoDataPoint(p.At, 1, p.PCI, p.ID, gpu.HWType, int64(p.Card.Index), p.Card.MIGMode, gpu.Vendor, options...)
}

// divisions records MIG devices.
func divisions(b *metadata.MetricsBuilder, p *gpu.Point) {
	for _, part := range p.Card.Now().MIG {
		options := []metadata.MetricAttributeOption{
			metadata.WithGpuMigGpuInstanceIDMetricAttribute(int64(part.GPUInstance)),
			metadata.WithGpuMigComputeInstanceIDMetricAttribute(int64(part.ComputeInstance)),
		}
		id := part.UUID
		if id == "" {
			id = p.ID + "/" + strconv.Itoa(part.GPUInstance)
		}
		b.RecordHwGpuMigMemoryLimitDataPoint(p.At, int64(part.MemoryTotal), p.PCI, id, gpu.HWType, options...)
		b.RecordHwGpuMigMemoryUsageDataPoint(p.At, int64(part.MemoryUsed), p.PCI, id, gpu.HWType, options...)
	}
}

// processes records who holds how much memory.
func processes(b *metadata.MetricsBuilder, p *gpu.Point, who func(uint32) identity.Process) {
	for _, process := range p.Card.Now().Processes {
		if process.MemoryKnown {
			b.RecordHwGpuProcessMemoryUsageDataPoint(p.At, int64(process.UsedMemory), p.PCI, p.ID, gpu.HWType, processOptions(who(process.PID))...)
		}
	}
}

func processOptions(who identity.Process) []metadata.MetricAttributeOption {
	options := []metadata.MetricAttributeOption{metadata.WithProcessPidMetricAttribute(int64(who.PID))}
	options = append(options, gpu.Texts(
		option{Value: who.Comm, With: metadata.WithProcessExecutableNameMetricAttribute},
		option{Value: who.ContainerID, With: metadata.WithContainerIDMetricAttribute},
		option{Value: who.PodUID, With: metadata.WithK8sPodUIDMetricAttribute},
		option{Value: who.JobID, With: metadata.WithGenAiTrainingJobIDMetricAttribute},
	)...)
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
