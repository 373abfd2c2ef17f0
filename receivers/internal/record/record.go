// Package record writes what every kernel receiver puts on its log records the
// same way: the host's resource, the event's name and times, its severity, and
// the identity of the process it happened to.
package record

//go:generate go run -C ../../../tools ./events ../receivers/internal/record

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
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

// Stamp writes who p is, and puts the record in the trace that its rank was given. Facts that no source gave are left out, so that an absent
// attribute means "not known", never zero. Pid 0 is the idle task and no process.
func (a IdentityAttributes) Stamp(p identity.Process) {
	NotZero(a.ProcessPid, p.PID)
	NotZero(a.ProcessStartNs, p.StartNS)
	NotZero(a.ProcessParentPid, p.ParentPID)
	a.ProcessExecutableName(p.Comm)
	a.ContainerID(p.ContainerID)
	a.K8sPodUID(p.PodUID)
	NotNegative(a.GenAiTrainingRank, p.Rank)
	NotNegative(a.GenAiTrainingLocalRank, p.LocalRank)
	NotNegative(a.GenAiTrainingWorldSize, p.WorldSize)
	a.GenAiTrainingJobID(p.JobID)
	a.GenAiTrainingJobDomain(p.Domain)
	if p.JobID == "" {
		a.GenAiTrainingRendezvous(p.Rendezvous)
	}
	if p.RankPID != 0 && !p.RankStart.IsZero() {
		a.GenAiTrainingRankPid(int64(p.RankPID))
		a.GenAiTrainingRankStartUnixNano(p.RankStart.UnixNano())
	}
	NotNegative(a.GenAiTrainingRestartCount, p.Attempt-1)
	if p.Drill {
		a.TracecoreDrill(true)
	}
	a.attributes.setTrace(p.Trace)
}

// number is a whole number of the kernel's or of a decoder's.
type number interface {
	~int | ~int32 | ~int64 | ~uint16 | ~uint32 | ~uint64
}

// NotZero sets an attribute to a number whose zero stands for "not known".
func NotZero[T number](set func(int64), value T) {
	if value != 0 {
		set(int64(value))
	}
}

// NotNegative sets an attribute to a number that is below zero when it is not known.
func NotNegative[T number](set func(int64), value T) {
	if int64(value) >= 0 {
		set(int64(value))
	}
}

// Numbers sets an attribute to a list, unless that is empty.
func Numbers[T number](begin func() pcommon.Slice, values []T) {
	if len(values) == 0 {
		return
	}
	list := begin()
	list.EnsureCapacity(len(values))
	for _, v := range values {
		list.AppendEmpty().SetInt(int64(v))
	}
}

// Texts sets an attribute to a list, unless that is empty.
func Texts(begin func() pcommon.Slice, values []string) {
	if len(values) == 0 {
		return
	}
	list := begin()
	list.EnsureCapacity(len(values))
	for _, v := range values {
		list.AppendEmpty().SetStr(v)
	}
}
