package fusefaultreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/node"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

const (
	eventStall    = "fuse.stall"
	eventStallEnd = "fuse.stall.end"
)

// converter turns stalls into log records. It is pure but for the builder's
// buffer, and not safe for concurrent use.
type converter struct {
	builder  *metadata.LogsBuilder
	resource pcommon.Resource
}

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	return &converter{builder: builder, resource: hostResource(builder.NewResourceBuilder(), host)}
}

func hostResource(resource *metadata.ResourceBuilder, host record.Host) pcommon.Resource {
	host.Set(resource.SetHostName, resource.SetHostID, resource.SetK8sNodeName)
	return resource.Emit()
}

// add makes a record of a report. Its time is that of the scan: a stall has no
// moment, it has an age.
func (c *converter) add(r *report, observed time.Time) {
	log := plog.NewLogRecord()
	name, severity := eventStall, record.Warning
	switch {
	case r.end != "":
		name, severity = eventStallEnd, record.Info
	case len(r.waiters.ranks) > 0:
		severity = record.Error
	}
	record.Start(log, name, r.at, observed, severity)
	log.Body().SetStr(describe(r))
	a := log.Attributes()
	a.EnsureCapacity(28)
	r.waiters.put(a)
	r.stall.put(a)
	if r.end != "" {
		a.PutStr("fuse.stall.end_reason", r.end)
	}
	c.builder.AppendLogRecord(log)
}

// emit returns the records added since the last.
func (c *converter) emit() plog.Logs {
	return c.builder.Emit(metadata.WithLogsResource(c.resource))
}

func (s *stall) put(a pcommon.Map) {
	putMount(a, s.mount.device, &s.place)
	a.PutStr("fuse.daemon.state", string(s.daemon))
	if d := &s.mount.daemon; d.pid != 0 {
		a.PutInt("fuse.daemon.pid", int64(d.pid))
		putText(a, "fuse.daemon.name", d.name)
	}
	a.PutStr("fuse.stall.id", s.id)
	a.PutStr("fuse.stall.kind", kindName(s.oldest.Kind))
	if s.oldest.Kind == fusefault.KindRequest {
		a.PutStr("fuse.opcode", opcodeName(s.oldest.Opcode))
	}
	a.PutInt("fuse.stall.age_ns", int64(s.age))
	a.PutInt("fuse.stall.answered", int64(s.answered))
	a.PutInt("fuse.stall.faults", int64(s.faults))
	a.PutInt("fuse.stall.requests", int64(s.requests))
}

func putMount(a pcommon.Map, d fusefault.Device, place *node.Mount) {
	a.PutStr("fuse.device", deviceName(d))
	putText(a, "fuse.mount.point", place.Point)
	putText(a, "fuse.mount.source", place.Source)
	putText(a, "fuse.mount.type", place.Type)
}

func (w *waiters) put(a pcommon.Map) {
	a.PutInt("fuse.stall.waiters", int64(w.threads))
	if !w.known {
		return
	}
	record.Stamp(a, w.named)
	putInts(a, "fuse.stall.pids", w.pids[:min(len(w.pids), maxListed)])
	putInts(a, "fuse.stall.ranks", w.ranks)
}

func putText(a pcommon.Map, key, text string) {
	if text != "" {
		a.PutStr(key, text)
	}
}

func putInts[T int | uint32](a pcommon.Map, key string, values []T) {
	if len(values) == 0 {
		return
	}
	list := a.PutEmptySlice(key)
	list.EnsureCapacity(len(values))
	for _, v := range values {
		list.AppendEmpty().SetInt(int64(v))
	}
}

func kindName(k fusefault.Kind) string {
	if k == fusefault.KindFault {
		return "fault"
	}
	return "request"
}

// describe says it in one line for whoever reads the log.
func describe(r *report) string {
	var text strings.Builder
	text.WriteString("FUSE mount ")
	if r.place.Point != "" {
		fmt.Fprintf(&text, "%s (%s, %s)", r.place.Point, r.place.Type, r.place.Source)
	} else {
		text.WriteString(deviceName(r.mount.device))
	}
	age := r.age.Round(100 * time.Millisecond)
	if r.end != "" {
		fmt.Fprintf(&text, ": nothing is stuck any more after %s (%s)", age, r.end)
		return text.String()
	}
	what := "a page fault"
	if r.oldest.Kind == fusefault.KindRequest {
		what = "a request (" + opcodeName(r.oldest.Opcode) + ")"
	}
	fmt.Fprintf(&text, ": %s is stuck for %s; threads that wait: %d", what, age, r.waiters.threads)
	if r.waiters.known {
		fmt.Fprintf(&text, ", first %s (pid %d", r.waiters.named.Comm, r.waiters.named.PID)
		if r.waiters.named.IsRank() {
			fmt.Fprintf(&text, ", rank %d", r.waiters.named.Rank)
		}
		text.WriteString(")")
	}
	if d := r.mount.daemon; d.pid != 0 {
		fmt.Fprintf(&text, "; its daemon %s (pid %d) is %s", d.name, d.pid, r.daemon)
	}
	return text.String()
}
