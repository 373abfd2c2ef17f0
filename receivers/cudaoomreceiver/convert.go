package cudaoomreceiver

import (
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

const eventRefusal = "cuda.refusal"

// converter turns findings into log records. It is pure but for the builder's
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

// refusal makes a record of a finding; known is what the identity extension says
// of the process, nil when it says nothing.
func (c *converter) refusal(f *finding, known *identity.Process, observed time.Time) plog.Logs {
	severity := record.Error
	if f.retried {
		severity = record.Info
	}
	r := plog.NewLogRecord()
	record.Start(r, eventRefusal, f.Time, observed, severity)
	process := identify(f, known)
	r.Body().SetStr(describe(f, process))
	a := r.Attributes()
	a.EnsureCapacity(14)
	record.Stamp(a, process)
	a.PutInt("cuda_oom.tried_alloc_bytes", int64(min(f.SizeBytes, math.MaxInt64)))
	a.PutStr("cuda_oom.function", f.Function.String())
	a.PutInt("cuda_oom.attempts", int64(f.attempts))
	if f.Device > cudaoom.DeviceUnknown {
		a.PutInt("cuda_oom.gpu_index", int64(f.Device))
	}
	if f.retried {
		a.PutBool("cuda_oom.retried", true)
	}
	c.builder.AppendLogRecord(r)
	return c.builder.Emit(metadata.WithLogsResource(c.resource))
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

// describe says it in one line for whoever reads the log.
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
