package kerneleventsreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/fold"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// eventProcessExit is the one event that does not come from the kernel log.
const eventProcessExit = "process.exit"

// The attributes that every record of a fault has, beside those of its kind.
const (
	attributeSeverity          = "kernelevents.severity"
	attributeClass             = "kernelevents.class"
	attributeRemedy            = "kernelevents.remedy"
	attributeApplicationCaused = "kernelevents.application_caused"
	attributeInjected          = "kernelevents.injected"
	attributeFromUserspace     = "kernelevents.from_userspace"
	attributeWriterPID         = "kernelevents.writer_pid"
	attributeWriterComm        = "kernelevents.writer_comm"
	attributeTruncated         = "kernelevents.truncated"
	attributeFaultID           = "kernelevents.fault_id"
	attributeRepeat            = "kernelevents.repeat"
	attributeCount             = "kernelevents.count"
	attributeFirstTime         = "kernelevents.first_time_unix_nano"
	attributeLastTime          = "kernelevents.last_time_unix_nano"

	attributeExitCode       = "process.exit.code"
	attributeExitSignal     = "process.exit.signal"
	attributeExitSignalName = "process.exit.signal_name"
	attributeExitCoreDump   = "process.exit.core_dump"
	attributeExitOOMVictim  = "process.exit.oom_victim"
	attributeExitInherited  = "process.exit.inherited_identity"
)

// converter turns reports and exits into log records. It is pure but for the
// builder's buffer, and not safe for concurrent use.
type converter struct {
	builder  *metadata.LogsBuilder
	resource pcommon.Resource
}

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	resource := builder.NewResourceBuilder()
	host.Set(resource.SetHostName, resource.SetHostID, resource.SetK8sNodeName)
	return &converter{builder: builder, resource: resource.Emit()}
}

// faults makes one record of each report. A first record is stamped with the
// time of the first occurrence, a repeat with that of the last.
func (c *converter) faults(reports []fold.Report, observed time.Time) plog.Logs {
	for _, report := range reports {
		r := plog.NewLogRecord()
		at := report.First
		if report.Repeat {
			at = report.Last
		}
		record.Start(r, report.Key.Event, at, observed, report.Severity)
		r.Body().SetStr(report.Text)
		putFault(r.Attributes(), report.Fault)
		putStorm(r.Attributes(), report)
		c.builder.AppendLogRecord(r)
	}
	return c.builder.Emit(metadata.WithLogsResource(c.resource))
}

func putFault(a pcommon.Map, f *kernellog.Fault) {
	a.EnsureCapacity(len(f.Attributes) + 20)
	for _, attribute := range f.Attributes {
		if attribute.IsInt {
			a.PutInt(attribute.Key, attribute.Int)
		} else {
			a.PutStr(attribute.Key, attribute.Text)
		}
	}
	a.PutStr(attributeSeverity, string(f.Severity))
	a.PutStr(attributeClass, string(f.Class))
	if f.Remedy != "" {
		a.PutStr(attributeRemedy, f.Remedy)
	}
	a.PutBool(attributeApplicationCaused, f.ApplicationCaused)
	a.PutBool(attributeInjected, f.Key.Injected)
	if f.Truncated {
		a.PutBool(attributeTruncated, true)
	}
	putWriter(a, f)
	record.Stamp(a, owner(f))
}

// putWriter says who wrote the line, when this kernel told: a line of a process
// is only as true as the process.
func putWriter(a pcommon.Map, f *kernellog.Fault) {
	if f.Writer == kmsg.WriterUnknown {
		return
	}
	a.PutBool(attributeFromUserspace, f.Writer == kmsg.WriterUserspace)
	if f.Writer == kmsg.WriterUserspace {
		a.PutInt(attributeWriterPID, int64(f.WriterPID))
		a.PutStr(attributeWriterComm, f.WriterComm)
	}
}

// owner is who the owner process is, or what the line alone says of it.
func owner(f *kernellog.Fault) identity.Process {
	if f.Owner != nil {
		return *f.Owner
	}
	return identity.Process{
		PID: f.OwnerPID, Comm: f.OwnerName,
		Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown,
	}
}

func putStorm(a pcommon.Map, report fold.Report) {
	a.PutStr(attributeFaultID, report.ID)
	a.PutBool(attributeRepeat, report.Repeat)
	a.PutInt(attributeCount, int64(report.Count))
	a.PutInt(attributeFirstTime, report.First.UnixNano())
	a.PutInt(attributeLastTime, report.Last.UnixNano())
}

// exit makes a record of the end of a process.
func (c *converter) exit(e identity.Exit, observed time.Time) plog.Logs {
	severity := record.Info
	if e.Signal != 0 || e.Code != 0 {
		severity = record.Error
	}
	r := plog.NewLogRecord()
	record.Start(r, eventProcessExit, e.Time, observed, severity)
	r.Body().SetStr(describeExit(e))
	a := r.Attributes()
	record.Stamp(a, e.Process)
	a.PutInt(attributeExitCode, int64(e.Code))
	a.PutInt(attributeExitSignal, int64(e.Signal))
	if e.Signal != 0 {
		a.PutStr(attributeExitSignalName, signalName(e.Signal))
	}
	a.PutBool(attributeExitCoreDump, e.CoreDump)
	a.PutBool(attributeExitOOMVictim, e.OOMVictim)
	a.PutBool(attributeExitInherited, e.Inherited)
	c.builder.AppendLogRecord(r)
	return c.builder.Emit(metadata.WithLogsResource(c.resource))
}

func describeExit(e identity.Exit) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (pid %d", e.Comm, e.PID)
	if e.IsRank() {
		fmt.Fprintf(&text, ", rank %d", e.Rank)
	}
	if e.Signal != 0 {
		fmt.Fprintf(&text, ") was ended by %s", signalName(e.Signal))
	} else {
		fmt.Fprintf(&text, ") exited with status %d", e.Code)
	}
	return text.String()
}
