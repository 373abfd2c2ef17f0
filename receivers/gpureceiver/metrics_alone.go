package gpureceiver

import (
	"strconv"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
)

// divisions records MIG devices, which NVML alone knows.
func (p *point) divisions() {
	for _, part := range p.gpu.Latest.MIG {
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

// processes records who holds how much memory, which NVML alone knows.
func (p *point) processes(who func(uint32) identity.Process) {
	for _, process := range p.gpu.Latest.Processes {
		if process.MemoryKnown {
			p.RecordHwGpuProcessMemoryUsageDataPoint(p.at, int64(process.UsedMemory), p.pci, p.id, hwType, processOptions(who(process.PID))...)
		}
	}
}

func processOptions(who identity.Process) []metadata.MetricAttributeOption {
	options := []metadata.MetricAttributeOption{metadata.WithProcessPidMetricAttribute(int64(who.PID))}
	options = append(options, texts(
		text{who.Comm, metadata.WithProcessExecutableNameMetricAttribute},
		text{who.ContainerID, metadata.WithContainerIDMetricAttribute},
		text{who.PodUID, metadata.WithK8sPodUIDMetricAttribute},
		text{who.JobID, metadata.WithGenAiTrainingJobIDMetricAttribute},
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

// activity is what DCGM's profiling module measures.
func (p *point) activity() {
	for part, share := range p.gpu.Latest.Ratios {
		if part == dcgm.Occupancy {
			p.RecordHwGpuSmOccupancyDataPoint(p.at, share, p.pci, p.id, hwType)
			continue
		}
		p.RecordHwGpuActivityDataPoint(p.at, share, p.pci, p.id, hwType, part)
	}
}

// retired are pages of memory, which DCGM alone tells.
func (p *point) retired() {
	for kind, quantity := range map[string]device.Quantity{device.ECCCorrected: device.RetiredCorrected, device.ECCUncorrected: device.RetiredUncorrected} {
		p.has(quantity, func(n uint64) {
			p.RecordHwGpuMemoryRetiredPagesDataPoint(p.at, int64(n), p.pci, p.id, hwType, kind)
		})
	}
	p.has(device.RetirePending, func(n uint64) { p.RecordHwGpuMemoryRetirePendingDataPoint(p.at, int64(n), p.pci, p.id, hwType) })
}

// health has a point for each watch of DCGM, so that one that was ill is seen to be
// well.
func (p *point) health() {
	if !p.gpu.Latest.HealthKnown {
		return
	}
	worst := map[string]int64{}
	for _, system := range dcgm.Systems() {
		worst[system] = 0
	}
	for _, i := range p.gpu.Latest.Health {
		worst[i.System] = max(worst[i.System], 1)
		if i.Failed {
			worst[i.System] = 2
		}
	}
	for system, value := range worst {
		p.RecordHwGpuHealthDataPoint(p.at, value, p.pci, p.id, hwType, system)
	}
}
