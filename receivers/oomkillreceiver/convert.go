package oomkillreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

const (
	eventOOMKill = "oom.kill"
	// hintOOMKilled is the word under which Kubernetes events report the same.
	hintOOMKilled = "oom_killed"
)

// converter turns kills into log records. It is pure but for the builder's
// buffer, and not safe for concurrent use.
type converter struct {
	builder  *metadata.LogsBuilder
	resource pcommon.Resource
}

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	resource := builder.NewResourceBuilder()
	host.Set(resource.SetHostName, resource.SetHostID, resource.SetK8sNodeName)
	return &converter{builder: builder, resource: resource.Emit()}
}

// kill makes a record of a kill; known is what the identity extension says of
// the victim, nil when it says nothing.
func (c *converter) kill(e *oomkill.Event, known *identity.Process, observed time.Time) plog.Logs {
	r := plog.NewLogRecord()
	record.Start(r, eventOOMKill, e.Time, observed, record.Error)
	victim := identify(e, known)
	r.Body().SetStr(describe(e, victim))
	a := r.Attributes()
	a.EnsureCapacity(26)
	record.Stamp(a, victim)
	a.PutStr("k8s.event.hint", hintOOMKilled)
	putMemory(a, e)
	putLimit(a, e)
	a.PutInt("oomkill.uid", int64(e.UID))
	a.PutInt("oomkill.score_adj", int64(e.OOMScoreAdj))
	a.PutInt("oomkill.trigger_pid", int64(e.TriggerPID))
	putText(a, "oomkill.trigger_name", e.TriggerComm)
	c.builder.AppendLogRecord(r)
	return c.builder.Emit(metadata.WithLogsResource(c.resource))
}

// identify joins what the kernel says of the victim at its death with what was
// known of it. The kernel's word stands: an identity may be an ancestor's.
func identify(e *oomkill.Event, known *identity.Process) identity.Process {
	victim := identity.Process{Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
	if known != nil {
		victim = *known
	}
	victim.PID, victim.ParentPID, victim.Comm = e.PID, e.ParentPID, e.Comm
	container, pod := identity.ContainerOf(e.CgroupPath)
	if container != "" {
		victim.ContainerID = container
	}
	if pod != "" {
		victim.PodUID = pod
	}
	return victim
}

func putMemory(a pcommon.Map, e *oomkill.Event) {
	a.PutInt("oomkill.total_vm_bytes", int64(e.TotalVMBytes))
	a.PutInt("oomkill.anon_rss_bytes", int64(e.AnonRSSBytes))
	a.PutInt("oomkill.file_rss_bytes", int64(e.FileRSSBytes))
	a.PutInt("oomkill.shmem_rss_bytes", int64(e.ShmemRSSBytes))
	a.PutInt("oomkill.page_tables_bytes", int64(e.PageTablesBytes))
	a.PutInt("oomkill.swap_bytes", int64(e.SwapBytes))
}

func putLimit(a pcommon.Map, e *oomkill.Event) {
	a.PutStr("oomkill.constraint", constraintName(e.Constraint))
	putText(a, "oomkill.cgroup", e.CgroupPath)
	putText(a, "oomkill.limit_cgroup", e.LimitCgroup)
	putKnown(a, "oomkill.limit_bytes", e.LimitBytes)
	putKnown(a, "oomkill.usage_bytes", e.UsageBytes)
	putKnown(a, "oomkill.failure_count", e.FailureCount)
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

func putText(a pcommon.Map, key, text string) {
	if text != "" {
		a.PutStr(key, text)
	}
}

// putKnown leaves out zero, which stands for not known.
func putKnown(a pcommon.Map, key string, value uint64) {
	if value != 0 {
		a.PutInt(key, int64(value))
	}
}

// describe says it in one line for whoever reads the log.
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
