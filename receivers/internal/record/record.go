// Package record writes what every kernel receiver puts on its log records the
// same way: the host's resource, the event's name and times, its severity, and
// the identity of the process it happened to.
package record

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// Attributes of a process's identity. The first five are semantic conventions.
const (
	AttributeProcessPID            = "process.pid"
	AttributeProcessParentPID      = "process.parent_pid"
	AttributeProcessExecutableName = "process.executable.name"
	AttributeContainerID           = "container.id"
	AttributePodUID                = "k8s.pod.uid"
	AttributeRank                  = "gen_ai.training.rank"
	AttributeLocalRank             = "gen_ai.training.local_rank"
	AttributeWorldSize             = "gen_ai.training.world_size"
	AttributeJobID                 = "gen_ai.training.job_id"
)

// Severity is the word a record carries beside its OTLP severity number.
type Severity string

// The severities, mildest first.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Error    Severity = "error"
	Critical Severity = "critical"
)

// Number returns the OTLP severity number of s: 9, 13, 17 or 21, and 0
// (unspecified) for any other word.
func (s Severity) Number() plog.SeverityNumber {
	switch s {
	case Info:
		return plog.SeverityNumberInfo
	case Warning:
		return plog.SeverityNumberWarn
	case Error:
		return plog.SeverityNumberError
	case Critical:
		return plog.SeverityNumberFatal
	default:
		return plog.SeverityNumberUnspecified
	}
}

// Start fills what every record has: its event name, when it happened (at),
// when we read it (observed) and how bad it is.
func Start(r plog.LogRecord, event string, at, observed time.Time, severity Severity) {
	r.SetEventName(event)
	r.SetTimestamp(pcommon.NewTimestampFromTime(at))
	r.SetObservedTimestamp(pcommon.NewTimestampFromTime(observed))
	r.SetSeverityNumber(severity.Number())
	r.SetSeverityText(string(severity))
}

// Stamp puts the identity of p on attributes. Facts that no source gave are
// left out, so that an absent attribute means "not known", never zero.
func Stamp(attributes pcommon.Map, p identity.Process) {
	putPID(attributes, AttributeProcessPID, p.PID)
	putPID(attributes, AttributeProcessParentPID, p.ParentPID)
	putText(attributes, AttributeProcessExecutableName, p.Comm)
	putText(attributes, AttributeContainerID, p.ContainerID)
	putText(attributes, AttributePodUID, p.PodUID)
	putKnown(attributes, AttributeRank, p.Rank)
	putKnown(attributes, AttributeLocalRank, p.LocalRank)
	putKnown(attributes, AttributeWorldSize, p.WorldSize)
	putText(attributes, AttributeJobID, p.JobID)
}

// putPID leaves out pid 0, which is the idle task and no process of anybody.
func putPID(attributes pcommon.Map, key string, pid uint32) {
	if pid != 0 {
		attributes.PutInt(key, int64(pid))
	}
}

func putText(attributes pcommon.Map, key, text string) {
	if text != "" {
		attributes.PutStr(key, text)
	}
}

func putKnown(attributes pcommon.Map, key string, value int) {
	if value > identity.Unknown {
		attributes.PutInt(key, int64(value))
	}
}
