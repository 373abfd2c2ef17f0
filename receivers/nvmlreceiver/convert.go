package nvmlreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/nvml"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/wire"
)

// vendor of all GPUs that NVML knows, as attributes have it.
const vendor = "nvidia"

// converter turns faults and readings into records. It is pure but for the
// builders' buffers, and not safe for concurrent use.
type converter struct {
	events   metadata.EventsConfig
	logs     *metadata.LogsBuilder
	builder  *metadata.MetricsBuilder
	resource pcommon.Resource
	meanings *catalogue.Catalogue
	resolver identity.Resolver // nil: nobody knows processes
}

func newConverter(config *Config, settings receiver.Settings, meanings *catalogue.Catalogue, host record.Host) *converter {
	logs := metadata.NewLogsBuilder(config.LogsBuilderConfig, settings)
	resource := logs.NewResourceBuilder()
	set := func(put func(string), value string) {
		if value != "" {
			put(value)
		}
	}
	set(resource.SetHostName, host.Name)
	set(resource.SetHostID, host.ID)
	set(resource.SetK8sNodeName, host.NodeName)
	return &converter{
		events: config.Events, logs: logs, builder: metadata.NewMetricsBuilder(config.MetricsBuilderConfig, settings),
		resource: resource.Emit(), meanings: meanings,
	}
}

// fault reads an event. One without its GPU is of no use, and an Xid that the
// application brings about blames whoever dies next when its process is not
// known: the kernel's line has the pid.
func (c *converter) fault(e *wire.Event, cards *cards) (fault, bool) {
	one := cards.find(e.PCI)
	if one == nil {
		return fault{}, false
	}
	f := fault{pci: one.PCI, gpuInstance: e.GPUInstance + 1, computeInstance: e.ComputeInstance + 1}
	switch e.Type {
	case nvml.EventXid:
		f.event, f.xid = eventXid, e.Data
		f.pid, _ = one.owner(e.GPUInstance, e.ComputeInstance)
		return f, f.pid != 0 || e.Data > 1<<16 || !c.meanings.Xid(uint32(e.Data)).Application
	case nvml.EventECCCorrected:
		f.event, f.errorType = eventECC, nvml.ECCCorrected
	case nvml.EventECCUncorrected:
		f.event, f.errorType = eventECC, nvml.ECCUncorrected
	case nvml.EventClock:
		f.event = eventClock
	default:
		return fault{}, false
	}
	return f, true
}

// tell takes a fault and lets it leave unless it repeats one.
func (m *monitor) tell(f fault, at time.Time) {
	if s, now := m.faults.add(f, at); now {
		m.out.putLogs(m.convert.faults([]*storm{s}, m.cards, at))
	}
}

// wanted reports whether an event is enabled.
func (c *converter) wanted(event string) bool {
	return map[string]bool{
		eventXid: c.events.GpuXid.Enabled, eventLost: c.events.GpuLost.Enabled, eventRecovered: c.events.GpuRecovered.Enabled,
		eventECC: c.events.GpuEcc.Enabled, eventClock: c.events.GpuClockChange.Enabled,
	}[event]
}

// faults makes one record of each storm.
func (c *converter) faults(storms []*storm, cards *cards, observed time.Time) plog.Logs {
	for _, s := range storms {
		if c.wanted(s.event) {
			c.logs.AppendLogRecord(c.record(s, cards.find(s.pci), observed))
		}
		s.told = s.count
	}
	return c.logs.Emit(metadata.WithLogsResource(c.resource))
}

func (c *converter) record(s *storm, one *card, observed time.Time) plog.LogRecord {
	r := plog.NewLogRecord()
	at, repeat := s.first, s.told > 0
	if repeat {
		at = s.last
	}
	a := r.Attributes()
	a.PutStr("gpu.id", s.pci)
	a.PutStr("gpu.vendor", vendor)
	if one != nil && one.UUID != "" {
		a.PutStr("gpu.uuid", one.UUID)
	}
	if s.gpuInstance > 0 {
		a.PutInt("gpu.mig.gpu_instance_id", int64(s.gpuInstance-1))
	}
	if s.computeInstance > 0 {
		a.PutInt("gpu.mig.compute_instance_id", int64(s.computeInstance-1))
	}
	a.PutStr("kernelevents.fault_id", s.id)
	a.PutBool("kernelevents.repeat", repeat)
	a.PutInt("kernelevents.count", int64(s.count))
	a.PutInt("kernelevents.first_time_unix_nano", s.first.UnixNano())
	a.PutInt("kernelevents.last_time_unix_nano", s.last.UnixNano())
	severity, text := c.judge(s, one, a)
	record.Start(r, s.event, at, observed, severity)
	r.Body().SetStr(text)
	return r
}

// judge puts what the catalogue says of a fault, and whom it happened to.
func (c *converter) judge(s *storm, one *card, a pcommon.Map) (record.Severity, string) {
	switch s.event {
	case eventECC:
		a.PutStr("error.type", s.errorType)
		if s.errorType == nvml.ECCCorrected {
			return record.Info, fmt.Sprintf("GPU %s corrected a memory error", s.pci)
		}
		return record.Error, fmt.Sprintf("GPU %s has a memory error that could not be corrected", s.pci)
	case eventClock:
		return record.Info, fmt.Sprintf("the clocks of GPU %s changed", s.pci)
	}
	meaning, text := catalogue.Xid{Judgement: c.meanings.Fault(s.event)}, fmt.Sprintf("GPU %s no longer answers", s.pci)
	pid := s.pid
	switch s.event {
	case eventXid:
		meaning = c.meanings.Xid(uint32(min(s.xid, 1<<16)))
		a.PutInt("kernelevents.xid", int64(s.xid))
		if meaning.Name != "" {
			a.PutStr("kernelevents.xid_name", meaning.Name)
		}
		text = strings.TrimSpace(fmt.Sprintf("GPU %s reports Xid %d %s", s.pci, s.xid, meaning.Name))
	case eventRecovered:
		text = fmt.Sprintf("GPU %s answers again", s.pci)
	case eventLost:
		if one != nil { // its last reading
			pid, _ = one.owner(nvml.NoInstance, nvml.NoInstance)
		}
	}
	a.PutStr("kernelevents.severity", string(meaning.Severity))
	a.PutStr("kernelevents.class", string(meaning.Class))
	a.PutBool("kernelevents.application_caused", meaning.Application)
	if meaning.Remedy != "" {
		a.PutStr("kernelevents.remedy", meaning.Remedy)
	}
	if pid != 0 {
		record.Stamp(a, c.process(pid, s.first))
	}
	return meaning.Severity, text
}

// process is who a pid is, or the pid alone.
func (c *converter) process(pid uint32, at time.Time) identity.Process {
	if c.resolver != nil {
		if p, known := c.resolver.Lookup(pid, 0, at); known {
			return p
		}
	}
	return identity.Process{PID: pid, Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
}
