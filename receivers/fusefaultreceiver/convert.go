package fusefaultreceiver

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// converter turns stalls into log records. It is pure but for the builder's
// buffer, and not safe for concurrent use.
type converter struct{ builder *metadata.LogsBuilder }

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	builder.SetHost(host)
	return &converter{builder: builder}
}

// add makes a record of a report. Its time is that of the scan: a stall has no
// moment, it has an age.
func (c *converter) add(r *report, observed time.Time) {
	head := record.Head{Trust: record.Proven, Time: r.at, Observed: observed, Severity: record.Warning, Text: describe(r)}
	if r.end != "" {
		head.Severity = record.Info
		a := c.builder.FuseStallEnd(head)
		r.put(a.IdentityAttributes, a.MountAttributes, a.StallAttributes)
		a.FuseStallEndReason(r.end)
		return
	}
	if len(r.waiters.ranks) > 0 {
		head.Severity = record.Error
	}
	a := c.builder.FuseStall(head)
	r.put(a.IdentityAttributes, a.MountAttributes, a.StallAttributes)
}

// emit returns the records added since the last.
func (c *converter) emit() plog.Logs { return c.builder.Emit() }

// put writes what a stall and its end both say.
func (r *report) put(who record.IdentityAttributes, where metadata.MountAttributes, what metadata.StallAttributes) {
	r.waiters.put(who, what)
	putMount(where, r.mount.device, &r.place)
	r.stall.put(what)
}

func (s *stall) put(a metadata.StallAttributes) {
	a.FuseDaemonState(string(s.daemon))
	if d := &s.mount.daemon; d.pid != 0 {
		a.FuseDaemonPid(int64(d.pid))
		a.FuseDaemonName(d.name)
	}
	a.FuseStallID(s.id)
	a.FuseStallKind(kindName(s.oldest.Kind))
	if s.oldest.Kind == fusefault.KindRequest {
		a.FuseOpcode(opcodeName(s.oldest.Opcode))
	}
	a.FuseStallAgeNs(int64(s.age))
	a.FuseStallAnswered(int64(s.answered))
	a.FuseStallFaults(int64(s.faults))
	a.FuseStallRequests(int64(s.requests))
}

func putMount(a metadata.MountAttributes, d fusefault.Device, place *procfs.Mount) {
	a.FuseDevice(deviceName(d))
	a.FuseMountPoint(place.Point)
	a.FuseMountSource(place.Source)
	a.FuseMountType(place.Type)
}

func (w *waiters) put(who record.IdentityAttributes, a metadata.StallAttributes) {
	a.FuseStallWaiters(int64(w.threads))
	if !w.known {
		return
	}
	who.Stamp(w.named)
	record.Numbers(a.FuseStallPids, w.pids[:min(len(w.pids), maxListed)])
	record.Numbers(a.FuseStallRanks, w.ranks)
}

func kindName(k fusefault.Kind) string {
	if k == fusefault.KindFault {
		return "fault"
	}
	return "request"
}

// describe says it in one line for a person who reads the log.
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
