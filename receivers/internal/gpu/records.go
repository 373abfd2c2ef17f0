package gpu

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu/wire"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Vendor of all GPUs that NVML and DCGM know, as attributes have it.
const Vendor = "nvidia"

// Converter turns faults and readings into records. It is pure but for the
// builders' buffers, and not safe for concurrent use.
type Converter struct {
	Makers
	Meanings *catalogue.Catalogue
	Resolver identity.Resolver // nil: nobody knows processes
}

// Makers is what mdatagen made for a receiver.
type Makers struct {
	Events      map[string]bool // those that are enabled
	AppendLog   func(plog.LogRecord)
	EmitLogs    func() plog.Logs
	Metrics     Builder
	EmitMetrics func() pmetric.Metrics
	// More records what this receiver alone has of a GPU that is not lost.
	More func(p *Point, driver string)
}

// Fault reads an event. One without its GPU is of no use, and an Xid that the
// application brings about blames whoever dies next when its process is not
// known: the kernel's line has the pid.
func (c *Converter) Fault(e *wire.Event, cards *Cards) (Fault, bool) {
	one := cards.Find(e.PCI)
	if one == nil {
		return Fault{}, false
	}
	f := Fault{PCI: one.PCI, GPUInstance: e.GPUInstance + 1, ComputeInstance: e.ComputeInstance + 1}
	switch e.Type {
	case nvml.EventXid:
		f.Event, f.XID = EventXid, e.Data
		f.PID, _ = one.owner(e.GPUInstance, e.ComputeInstance)
		return f, f.PID != 0 || e.Data > 1<<16 || !c.Meanings.Xid(uint32(e.Data)).Application
	case nvml.EventECCCorrected:
		f.Event, f.Kind = EventECC, nvml.ECCCorrected
	case nvml.EventECCUncorrected:
		f.Event, f.Kind = EventECC, nvml.ECCUncorrected
	case nvml.EventClock:
		f.Event = EventClock
	case wire.EventPolicy:
		f.Event, f.Kind, f.Text = EventPolicy, e.Kind, e.Text
	default:
		return Fault{}, false
	}
	return f, true
}

// Faults makes one record of each storm.
func (c *Converter) Faults(storms []*Storm, cards *Cards, observed time.Time) plog.Logs {
	for _, s := range storms {
		if c.Events[s.Event] {
			c.AppendLog(c.record(s, cards.Find(s.PCI), observed))
		}
		s.Told = s.Count
	}
	return c.EmitLogs()
}

func (c *Converter) record(s *Storm, one *Card, observed time.Time) plog.LogRecord {
	r := plog.NewLogRecord()
	at, repeat := s.First, s.Told > 0
	if repeat {
		at = s.Last
	}
	a := r.Attributes()
	a.PutStr("gpu.id", s.PCI)
	a.PutStr("gpu.vendor", Vendor)
	if one != nil && one.UUID != "" {
		a.PutStr("gpu.uuid", one.UUID)
	}
	if s.GPUInstance > 0 {
		a.PutInt("gpu.mig.gpu_instance_id", int64(s.GPUInstance-1))
	}
	if s.ComputeInstance > 0 {
		a.PutInt("gpu.mig.compute_instance_id", int64(s.ComputeInstance-1))
	}
	a.PutStr("kernelevents.fault_id", s.ID)
	a.PutBool("kernelevents.repeat", repeat)
	a.PutInt("kernelevents.count", int64(s.Count))
	a.PutInt("kernelevents.first_time_unix_nano", s.First.UnixNano())
	a.PutInt("kernelevents.last_time_unix_nano", s.Last.UnixNano())
	severity, text := c.judge(s, one, a)
	record.Start(r, s.Event, at, observed, severity)
	r.Body().SetStr(text)
	return r
}

// judge puts what the catalogue says of a fault, and whom it happened to.
func (c *Converter) judge(s *Storm, one *Card, a pcommon.Map) (record.Severity, string) {
	switch s.Event {
	case EventECC:
		a.PutStr("error.type", s.Kind)
		if s.Kind == nvml.ECCCorrected {
			return record.Info, fmt.Sprintf("GPU %s corrected a memory error", s.PCI)
		}
		return record.Error, fmt.Sprintf("GPU %s has a memory error that could not be corrected", s.PCI)
	case EventHealth:
		return c.health(s, a)
	case EventPolicy:
		a.PutStr("hw.gpu.policy.condition", s.Kind)
		return record.Warning, because(fmt.Sprintf("GPU %s violates the policy %s", s.PCI, s.Kind), s.Text)
	case EventClock:
		return record.Info, fmt.Sprintf("the clocks of GPU %s changed", s.PCI)
	}
	meaning, text := catalogue.Xid{Judgement: c.Meanings.Fault(s.Event)}, fmt.Sprintf("GPU %s no longer answers", s.PCI)
	pid := s.PID
	switch s.Event {
	case EventXid:
		meaning = c.Meanings.Xid(uint32(min(s.XID, 1<<16)))
		a.PutInt("kernelevents.xid", int64(s.XID))
		if meaning.Name != "" {
			a.PutStr("kernelevents.xid_name", meaning.Name)
		}
		text = strings.TrimSpace(fmt.Sprintf("GPU %s reports Xid %d %s", s.PCI, s.XID, meaning.Name))
	case EventRecovered:
		text = fmt.Sprintf("GPU %s answers again", s.PCI)
	case EventLost:
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
		record.Stamp(a, c.Process(pid, s.First))
	}
	return meaning.Severity, text
}

// health is a finding of the library's own watches.
func (c *Converter) health(s *Storm, a pcommon.Map) (record.Severity, string) {
	severity, state, says := record.Warning, stateReduced, "warns"
	if s.Failed {
		severity, state, says = record.Error, stateDown, "fails"
	}
	a.PutStr("hw.gpu.health.system", s.Kind)
	a.PutStr("hw.state", state)
	return severity, because(fmt.Sprintf("the health watch %s of GPU %s %s", s.Kind, s.PCI, says), s.Text)
}

// because adds what the library says.
func because(text, said string) string {
	if said == "" {
		return text
	}
	return text + ": " + said
}

// Process is who a pid is, or the pid alone.
func (c *Converter) Process(pid uint32, at time.Time) identity.Process {
	if c.Resolver != nil {
		if p, known := c.Resolver.Lookup(pid, 0, at); known {
			return p
		}
	}
	return identity.Process{PID: pid, Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
}
