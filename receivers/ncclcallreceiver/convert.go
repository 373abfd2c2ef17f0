package ncclcallreceiver

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

// converter turns what the probe says into log records. It is pure but for the
// builder's buffer, and not safe for concurrent use.
type converter struct {
	builder *metadata.LogsBuilder
	clock   func() (most time.Duration, ok bool)
}

func newConverter(builder *metadata.LogsBuilder, host record.Host) *converter {
	builder.SetHost(host)
	return &converter{builder: builder, clock: clockError}
}

// identify is what is known of a process.
func identify(pid uint32, known *identity.Process) identity.Process {
	process := identity.Process{Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
	if known != nil {
		process = *known
	}
	process.PID = pid
	return process
}

// init makes a record of a communicator that is being made.
func (c *converter) init(e *ncclcall.Event, known *identity.Process, observed time.Time) plog.Logs {
	process := identify(e.PID, known)
	a := c.builder.NcclCallInit(record.Head{Trust: record.Claimed, Time: e.Time, Observed: observed, Severity: record.Info, Text: describeInit(e, process)})
	a.Stamp(process)
	a.NcclCallFunction(e.Kind.String())
	a.NcclCallComm(hash(e.Hash))
	if e.Kind == ncclcall.Split {
		a.NcclCallColor(int64(e.Color))
	}
	if e.Rank >= 0 {
		a.NcclCallCommRank(int64(e.Rank))
	}
	if e.Size > 0 && e.Kind != ncclcall.Shrink {
		a.NcclCallCommSize(int64(e.Size))
	}
	if e.Root.IsValid() {
		a.NcclCallRootAddress(e.Root.String())
	}
	return c.builder.Emit()
}

// change makes a record of what has changed.
func (c *converter) change(x *change, known *identity.Process, observed time.Time) plog.Logs {
	process := identify(x.pid, known)
	head := record.Head{Trust: record.Claimed, Time: x.at, Observed: observed, Severity: record.Info, Text: describeChange(x, process)}
	switch x.what {
	case moving:
		a := c.builder.NcclCallMoving(head)
		a.Stamp(process)
		a.GpuID(x.GPU)
		communicator(a.Communicator(), x.Communicator)
		a.NcclCallStoppedNs(x.idle.Nanoseconds())
	case ended:
		a := c.builder.NcclCallEnd(head)
		a.Stamp(process)
		a.GpuID(x.GPU)
		communicator(a.Communicator(), x.Communicator)
		if x.twins {
			a.NcclCallUnidentified("twins")
		}
		a.NcclCallEndReason(x.reason)
	case doing:
		a := c.builder.NcclCallDoing(head)
		a.Stamp(process)
		a.NcclCallIdleNs(x.idle.Nanoseconds())
		if x.process != nil {
			x.process.Write(a.Doing(), x.at)
		}
		a.StampSignal(x.signal)
	case waiting:
		a := c.builder.NcclCallInitWaiting(head)
		a.Stamp(process)
		a.NcclCallFunction(x.init.Kind.String())
		a.NcclCallComm(hash(x.init.Hash))
		a.NcclCallCommRank(int64(x.init.Rank))
		a.NcclCallCommSize(int64(x.init.Size))
		if x.init.Root.IsValid() {
			a.NcclCallRootAddress(x.init.Root.String())
		}
		a.NcclCallWaitedNs(x.idle.Nanoseconds())
	case done:
		a := c.builder.NcclCallInitDone(head)
		a.Stamp(process)
		a.NcclCallFunction(x.init.Kind.String())
		a.NcclCallComm(hash(x.init.Hash))
		a.NcclCallCommRank(int64(x.init.Rank))
		a.NcclCallCommSize(int64(x.init.Size))
		a.NcclCallEndReason(x.reason)
		a.NcclCallWaitedNs(x.idle.Nanoseconds())
	case arrival:
		c.arrivals(x, head, process)
	case stopped:
		c.stopped(x, head, process)
	}
	return c.builder.Emit()
}

// arrivals makes a record of when a rank made some of its calls.
func (c *converter) arrivals(x *change, head record.Head, process identity.Process) {
	a := c.builder.NcclCallArrivals(head)
	a.Stamp(process)
	a.GpuID(x.GPU)
	a.NcclCallComm(hash(x.Hash))
	a.NcclCallCommRank(int64(x.Rank))
	a.NcclCallCommSize(int64(x.Size))
	if most, ok := c.clock(); ok {
		a.NcclCallClockErrorNs(most.Nanoseconds())
	}
	a.NcclCallPauseNs(rhythm(x.samples).Nanoseconds())
	numbers, ages := a.NcclCallArrivalNumbers(), a.NcclCallArrivalAgesNs()
	for i := range x.samples {
		numbers.AppendEmpty().SetInt(number(x.samples[i].Number))
		ages.AppendEmpty().SetInt(max(0, x.at.Sub(x.samples[i].Time).Nanoseconds()))
	}
	if len(x.peers) > 0 {
		peers := a.NcclCallPeerComms()
		for _, h := range x.peers {
			peers.AppendEmpty().SetStr(hash(h))
		}
	}
}

func (c *converter) stopped(x *change, head record.Head, process identity.Process) {
	a := c.builder.NcclCallStopped(head)
	a.Stamp(process)
	a.GpuID(x.GPU)
	communicator(a.Communicator(), x.Communicator)
	if x.twins {
		a.NcclCallUnidentified("twins")
	}
	a.NcclCallIdleNs(x.idle.Nanoseconds())
	if x.GroupDepth > 0 {
		a.NcclCallGroupDepth(int64(x.GroupDepth))
	}
	if x.launches > 0 {
		a.NcclCallGraphLaunches(number(x.launches))
	}
	if x.process != nil {
		x.process.Write(a.Doing(), x.at)
	}
	a.StampSignal(x.signal)
	if len(x.Recent) > 0 {
		recent := a.NcclCallRecent()
		for i := range x.Recent {
			r := &x.Recent[i]
			recent.AppendEmpty().SetStr(fmt.Sprintf("%d %s %d %s", r.Number+x.Before, r.Operation, r.Count, r.Type))
		}
	}
}

func communicator(a metadata.CommunicatorAttributes, c *ncclcall.Communicator) {
	a.NcclCallComm(hash(c.Hash))
	switch c.Identity {
	case ncclcall.Known:
		a.NcclCallCommRank(int64(c.Rank))
		a.NcclCallCommSize(int64(c.Size))
	case ncclcall.Unread:
		a.NcclCallUnidentified("memory")
	default:
		a.NcclCallUnidentified("layout")
	}
	a.NcclCallExact(c.Exact)
	if c.Aligned {
		a.NcclCallAligned(true)
	}
	a.NcclCallCollectives(number(c.Collectives + c.Before))
	a.NcclCallPointToPoint(number(c.PointToPoint()))
	a.NcclCallLastOperation(c.Last.Operation.String())
	a.NcclCallLastCount(number(c.Last.Count))
	a.NcclCallLastType(c.Last.Type.String())
	a.NcclCallLastUnixNano(c.Last.Time.UnixNano())
	if c.Last.Root >= 0 {
		a.NcclCallLastRoot(int64(c.Last.Root))
	}
}

// limited makes a record of a process of which other calls are counted than before. Whose
// rank it is, its environment says.
func (c *converter) limited(x limited, known *identity.Process, at, observed time.Time) plog.Logs {
	process := identify(x.pid, known)
	text, severity := "calls NCCL too often, or a process of its user does: ", record.Warning
	switch x.limit {
	case ncclcall.NoCalls:
		text += "of its calls only those that make and end communicators are counted for a while"
	case ncclcall.NoPointToPoint:
		text += "its sends and receives are not counted for a while"
	default:
		text, severity = "calls NCCL less often: all its calls are counted again", record.Info
	}
	a := c.builder.NcclCallLimited(record.Head{Trust: record.Claimed, Time: at, Observed: observed, Severity: severity, Text: who(process) + " " + text})
	a.Stamp(process)
	a.NcclCallLimit(x.limit.String())
	return c.builder.Emit()
}

// unseen makes a record of a process of which not all collectives make a call that is seen.
func (c *converter) unseen(one ncclcall.Unseen, known *identity.Process, at, observed time.Time) plog.Logs {
	process := identify(one.PID, known)
	text := "lets its GPUs communicate by themselves, which makes no call"
	if one.Why == ncclcall.Static {
		text = "has NCCL linked into " + safetext.Line(one.File) + ", which does not export its functions: its calls are not seen"
	} else if one.File != "" {
		text += ": it has loaded " + safetext.Line(one.File)
	}
	a := c.builder.NcclCallLimited(record.Head{Trust: record.Claimed, Time: at, Observed: observed, Severity: record.Info, Text: who(process) + " " + text})
	a.Stamp(process)
	a.NcclCallLimit(string(one.Why))
	a.NcclCallLibrary(one.File)
	return c.builder.Emit()
}

// hash is a communicator as NCCL's log has it; empty where it is not known.
func hash(h uint64) string {
	if h == 0 {
		return ""
	}
	return fmt.Sprintf("0x%x", h)
}

func number(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// describeInit says it in one line for a person who reads the log.
func describeInit(e *ncclcall.Event, process identity.Process) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s calls %s", who(process), e.Kind)
	if e.Rank >= 0 && e.Size > 0 {
		fmt.Fprintf(&text, " as rank %d of %d", e.Rank, e.Size)
	}
	if e.Hash != 0 {
		fmt.Fprintf(&text, ", communicator 0x%x", e.Hash)
	}
	if e.Root.IsValid() {
		fmt.Fprintf(&text, "; rank 0 listens at %s", e.Root)
	}
	return text.String()
}

func describeChange(x *change, process identity.Process) string {
	var text strings.Builder
	rounded := x.idle.Round(time.Second)
	switch x.what {
	case doing:
		fmt.Fprintf(&text, "%s has called no collective for %s, and is %s now", who(process), rounded, cmp.Or(string(x.process.Activity(x.at)), string(x.process.Now.State), "of unknown state"))
		return text.String()
	case waiting:
		if splits(x.init.Kind) {
			fmt.Fprintf(&text, "%s called %s as rank %d of %d of communicator %s %s ago, and has made no call since", who(process), x.init.Kind, x.init.Rank, x.init.Size, hash(x.init.Hash), rounded)
			return text.String()
		}
		fmt.Fprintf(&text, "%s called %s as rank %d of %d %s ago, and has not used the communicator since", who(process), x.init.Kind, x.init.Rank, x.init.Size, rounded)
		return text.String()
	case done:
		fmt.Fprintf(&text, "%s waits no more in %s, after %s", who(process), x.init.Kind, rounded)
		return text.String()
	}
	name := "a communicator"
	if x.Hash != 0 {
		name = "communicator " + hash(x.Hash)
	}
	if x.Identity == ncclcall.Known {
		name += fmt.Sprintf(" (rank %d of %d)", x.Rank, x.Size)
	}
	switch x.what {
	case arrival:
		fmt.Fprintf(&text, "%s has made %d calls on %s", who(process), x.Collectives, name)
		return text.String()
	case stopped:
		fmt.Fprintf(&text, "%s has made no call on %s for %s", who(process), name, rounded)
	case ended:
		fmt.Fprintf(&text, "%s has no %s any more (%s)", who(process), name, x.reason)
	default:
		fmt.Fprintf(&text, "%s calls on %s again, after %s", who(process), name, rounded)
	}
	fmt.Fprintf(&text, ": %d collectives, the last call %s of %d x %s", x.Collectives, x.Last.Operation, x.Last.Count, x.Last.Type)
	if x.launches > 0 {
		fmt.Fprintf(&text, "; it launched CUDA graphs since (%d or more), whose collectives make no call", x.launches)
	}
	return text.String()
}

func who(process identity.Process) string {
	name := fmt.Sprintf("pid %d", process.PID)
	if process.IsRank() {
		name += fmt.Sprintf(", rank %d", process.Rank)
	}
	if process.Comm == "" {
		return "a process (" + name + ")"
	}
	return process.Comm + " (" + name + ")"
}
