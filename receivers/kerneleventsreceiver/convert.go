package kerneleventsreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/fold"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// converter turns reports and exits into log records. It is pure but for the
// builder's buffer, and not safe for concurrent use.
type converter struct{ builder *metadata.LogsBuilder }

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	builder.SetHost(host)
	return &converter{builder: builder}
}

// faults makes one record of each report. A first record is stamped with the
// time of the first occurrence, a repeat with that of the last.
func (c *converter) faults(reports []fold.Report, observed time.Time) plog.Logs {
	for _, report := range reports {
		at := report.First
		if report.Repeat {
			at = report.Last
		}
		a := c.builder.Add(record.Head{Trust: report.Key.Trust, Time: at, Observed: observed, Severity: report.Severity, Text: report.Text}, report.Event)
		putJudgement(record.JudgementAttributesOn(a), report.Fault)
		putLine(metadata.LineAttributesOn(a), report.Fault)
		putStorm(record.StormAttributesOn(a), report)
		if _, owned := report.Event.(interface {
			Identity() record.IdentityAttributes
		}); owned {
			record.IdentityAttributesOn(a).Stamp(owner(report.Fault))
		}
	}
	return c.builder.Emit()
}

func putJudgement(a record.JudgementAttributes, f *kernellog.Fault) {
	a.KerneleventsSeverity(string(f.Severity))
	a.KerneleventsClass(string(f.Class))
	a.KerneleventsRemedy(f.Remedy)
	a.KerneleventsApplicationCaused(f.ApplicationCaused)
}

// putLine says who wrote the line, when that is known.
func putLine(a metadata.LineAttributes, f *kernellog.Fault) {
	a.KerneleventsInjected(f.Key.Injected)
	if f.Truncated {
		a.KerneleventsTruncated(true)
	}
	if f.Late {
		a.KerneleventsLate(true)
	}
	a.KerneleventsOrigin(f.Origin.String())
	if f.Key.Writer == kmsg.WriterUserspace {
		a.KerneleventsWriterPid(int64(f.WriterPID))
		a.KerneleventsWriterComm(f.WriterComm)
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

func putStorm(a record.StormAttributes, report fold.Report) {
	a.KerneleventsFaultID(report.ID)
	a.KerneleventsRepeat(report.Repeat)
	a.KerneleventsCount(int64(report.Count))
	a.KerneleventsFirstTimeUnixNano(report.First.UnixNano())
	a.KerneleventsLastTimeUnixNano(report.Last.UnixNano())
}

// exit makes a record of the end of a process, whose job had been watched for so long; 0 where it was
// from its start.
func (c *converter) exit(e identity.Exit, watched time.Duration, observed time.Time) plog.Logs {
	severity := record.Info
	if e.Failed() && !e.Helper {
		severity = record.Error
	}
	a := c.builder.ProcessExit(record.Head{Trust: record.Proven, Time: e.Time, Observed: observed, Severity: severity, Text: describeExit(e)})
	a.Stamp(e.Process)
	a.ProcessExitCode(int64(e.Code))
	a.ProcessExitSignal(int64(e.Signal))
	if e.Signal != 0 {
		a.ProcessExitSignalName(record.SignalName(e.Signal))
	}
	a.ProcessExitCoreDump(e.CoreDump)
	a.ProcessExitOomVictim(e.OOMVictim)
	a.ProcessExitInheritedIdentity(e.Inherited)
	if e.Helper {
		a.ProcessExitHelper(true)
	}
	a.StampSignal(e.Signalled)
	if e.Others.Lived > 0 {
		a.ProcessExitSparedRanks(int64(e.Others.Spared()))
		if e.Others.Wrapped {
			a.ProcessExitAlikeRanks(int64(e.Others.Alike))
		}
	}
	if watched != 0 {
		a.ProcessExitWatchedNs(watched.Nanoseconds())
	}
	putWrapper(a, e.Wrapper)
	if c := e.Child; c != nil {
		a.ProcessExitChildPid(int64(c.PID))
		a.ProcessExitChildName(c.Comm)
		a.ProcessExitChildSignalName(record.SignalName(c.Signal))
		if c.SentByAnother() {
			a.ProcessExitChildSenderPid(int64(c.By.PID))
			a.ProcessExitChildSenderName(c.By.Comm)
			a.ProcessExitChildSenderUserID(int64(c.By.UserID))
		}
	}
	if e.Late {
		a.TracecoreLate(true)
	}
	return c.builder.Emit()
}

func putWrapper(a metadata.ProcessExit, w *identity.Wrapper) {
	if w == nil {
		return
	}
	a.ProcessExitWrapperPid(int64(w.PID))
	a.ProcessExitWrapperName(w.Comm)
	a.ProcessExitWrapperCode(int64(w.Code))
	if w.Signal != 0 {
		a.ProcessExitWrapperSignalName(record.SignalName(w.Signal))
	}
	if w.Outlived {
		a.ProcessExitWrapperOutlived(true)
	}
}

// boot makes the record of the boot of this machine.
func (c *converter) boot(up time.Duration, now time.Time) plog.Logs {
	text := fmt.Sprintf("the host has been up for %s", up.Round(time.Second))
	a := c.builder.HostBoot(record.Head{Trust: record.Proven, Time: now, Observed: now, Severity: record.Info, Text: text})
	a.HostUptimeNs(up.Nanoseconds())
	return c.builder.Emit()
}

func describeExit(e identity.Exit) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (pid %d", e.Comm, e.PID)
	if e.IsRank() {
		fmt.Fprintf(&text, ", rank %d", e.Rank)
	}
	if e.Signal != 0 {
		fmt.Fprintf(&text, ") was ended by %s", record.SignalName(e.Signal))
	} else {
		fmt.Fprintf(&text, ") exited with status %d", e.Code)
	}
	if c := e.Child; c != nil {
		fmt.Fprintf(&text, ", after its child %s (pid %d) was ended by %s", c.Comm, c.PID, record.SignalName(c.Signal))
		if c.SentByAnother() {
			fmt.Fprintf(&text, ", sent by %s", record.SentBy(identity.Signal{Number: c.Signal, Sender: c.By}))
		}
	}
	if w := e.Wrapper; w != nil && w.Outlived {
		fmt.Fprintf(&text, "; %s (pid %d), which ran it, had ended before", w.Comm, w.PID)
	} else if w != nil {
		fmt.Fprintf(&text, "; %s (pid %d), which ran it, passed that on", w.Comm, w.PID)
	}
	if by := record.SentBy(e.Signalled); by != "" {
		fmt.Fprintf(&text, "; %s was sent by %s", record.SignalName(e.Signalled.Number), by)
	}
	return text.String()
}
