package cudaoomreceiver

import (
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// converter turns findings into log records. It is pure but for the builder's
// buffer, and not safe for concurrent use.
type converter struct{ builder *metadata.LogsBuilder }

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	builder.SetHost(host)
	return &converter{builder: builder}
}

// refusal makes a record of a finding; known is what the identity extension says
// of the process, nil when it says nothing. It is a claim: the libcuda that the probe sits on
// is a file of the process, which may bring one of its own and call it at will.
func (c *converter) refusal(f *finding, known *identity.Process, observed time.Time) plog.Logs {
	severity := record.Error
	if f.retried {
		severity = record.Info
	}
	process := identify(f, known)
	a := c.builder.CudaRefusal(record.Head{Trust: record.Claimed, Time: f.Time, Observed: observed, Severity: severity, Text: describe(f, process)})
	a.Stamp(process)
	a.CudaOomTriedAllocBytes(int64(min(f.SizeBytes, math.MaxInt64)))
	a.CudaOomFunction(f.Function.String())
	a.CudaOomAttempts(int64(f.attempts))
	if f.Device > cudaoom.DeviceUnknown {
		a.CudaOomGpuIndex(int64(f.Device))
	}
	if f.retried {
		a.CudaOomRetried(true)
	}
	return c.builder.Emit()
}

// identify names the process of a finding. The event's name is its thread's, which
// is the process's only in the first thread.
func identify(f *finding, known *identity.Process) identity.Process {
	process := identity.Process{Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
	if known != nil {
		process = *known
	}
	process.PID = f.PID
	if process.Comm == "" && f.Thread == f.PID {
		process.Comm = f.Comm
	}
	return process
}

// describe says it in one line for a person who reads the log.
func describe(f *finding, process identity.Process) string {
	var text strings.Builder
	text.WriteString("the CUDA driver ")
	if f.retried {
		text.WriteString("granted ")
	} else {
		text.WriteString("refused ")
	}
	if process.Comm != "" {
		text.WriteString(process.Comm + " ")
	}
	fmt.Fprintf(&text, "(pid %d", f.PID)
	if process.IsRank() {
		fmt.Fprintf(&text, ", rank %d", process.Rank)
	}
	fmt.Fprintf(&text, ") %d bytes of GPU memory", f.SizeBytes)
	if f.Device > cudaoom.DeviceUnknown {
		fmt.Fprintf(&text, " on its GPU %d", f.Device)
	}
	if f.retried {
		text.WriteString(" that it had refused")
		return text.String()
	}
	fmt.Fprintf(&text, ": out of memory (%s, %d times)", f.Function, f.attempts)
	return text.String()
}
