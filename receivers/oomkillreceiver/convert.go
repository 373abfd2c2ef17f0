package oomkillreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// hintOOMKilled is the word under which Kubernetes events report the same.
const hintOOMKilled = "oom_killed"

// converter turns kills into log records. It is pure but for the builder's
// buffer, and not safe for concurrent use.
type converter struct{ builder *metadata.LogsBuilder }

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	builder.SetHost(host)
	return &converter{builder: builder}
}

// kill makes a record of a kill; known is what the identity extension says of
// the victim, nil when it says nothing.
func (c *converter) kill(e *oomkill.Event, known *identity.Process, observed time.Time) plog.Logs {
	a := c.begin(e, known, record.Proven, observed)
	a.OomkillSwapBytes(int64(e.SwapBytes))
	a.OomkillTriggerPid(int64(e.TriggerPID))
	if e.Late {
		a.TracecoreLate(true)
	}
	return c.builder.Emit()
}

// begin writes what the probe and a saved kernel log both say.
func (c *converter) begin(e *oomkill.Event, known *identity.Process, trust record.Trust, observed time.Time) metadata.OomKill {
	victim := identify(e, known)
	a := c.builder.OomKill(record.Head{Trust: trust, Time: e.Time, Observed: observed, Severity: record.Error, Text: describe(e, victim)})
	a.Stamp(victim)
	a.K8sEventHint(hintOOMKilled)
	putMemory(a, e)
	putLimit(a, e)
	a.OomkillUID(int64(e.UID))
	a.OomkillScoreAdj(int64(e.OOMScoreAdj))
	a.OomkillTriggerName(e.TriggerComm)
	return a
}

// identify joins what the kernel says of the victim at its death with what was
// known of it. The kernel's word stands: an identity may be an ancestor's.
func identify(e *oomkill.Event, known *identity.Process) identity.Process {
	victim := identity.Process{Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
	if known != nil {
		victim = *known
	}
	victim.PID, victim.ParentPID, victim.Comm = e.PID, e.ParentPID, e.Comm
	container, pod := procfs.ContainerOf(e.CgroupPath)
	if container != "" {
		victim.ContainerID = container
	}
	if pod != "" {
		victim.PodUID = pod
	}
	return victim
}

func putMemory(a metadata.OomKill, e *oomkill.Event) {
	a.OomkillTotalVMBytes(int64(e.TotalVMBytes))
	a.OomkillAnonRssBytes(int64(e.AnonRSSBytes))
	a.OomkillFileRssBytes(int64(e.FileRSSBytes))
	a.OomkillShmemRssBytes(int64(e.ShmemRSSBytes))
	a.OomkillPageTablesBytes(int64(e.PageTablesBytes))
}

func putLimit(a metadata.OomKill, e *oomkill.Event) {
	a.OomkillConstraint(constraintName(e.Constraint))
	a.OomkillCgroup(e.CgroupPath)
	a.OomkillLimitCgroup(e.LimitCgroup)
	a.OomkillLimitOf(procfs.LimitOf(e.LimitCgroup, e.CgroupPath))
	record.NotZero(a.OomkillLimitBytes, e.LimitBytes)
	record.NotZero(a.OomkillUsageBytes, e.UsageBytes)
	record.NotZero(a.OomkillFailureCount, e.FailureCount)
}

func constraintName(c oomkill.Constraint) string {
	switch c {
	case oomkill.ConstraintCgroup:
		return "cgroup"
	case oomkill.ConstraintNode:
		return "node"
	default:
		return "unknown"
	}
}

// describe says it in one line for a person who reads the log.
func describe(e *oomkill.Event, victim identity.Process) string {
	var text strings.Builder
	fmt.Fprintf(&text, "the kernel killed %s (pid %d", e.Comm, e.PID)
	if victim.IsRank() {
		fmt.Fprintf(&text, ", rank %d", victim.Rank)
	}
	switch e.Constraint {
	case oomkill.ConstraintNode:
		text.WriteString("): the node ran out of memory")
	case oomkill.ConstraintCgroup:
		text.WriteString("): its memory cgroup")
		sayIf(&text, e.LimitCgroup != "", " %s", e.LimitCgroup)
		text.WriteString(" reached its limit")
		sayIf(&text, e.LimitBytes != 0, " of %d bytes", e.LimitBytes)
		sayIf(&text, e.UsageBytes != 0, " with %d in use", e.UsageBytes)
	default:
		text.WriteString(") for want of memory")
	}
	return text.String()
}

func sayIf(text *strings.Builder, known bool, format string, value any) {
	if known {
		fmt.Fprintf(text, format, value)
	}
}
