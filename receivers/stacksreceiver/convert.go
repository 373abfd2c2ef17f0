package stacksreceiver

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver/internal/metadata"
)

// standing is a stack that was taken.
type standing struct {
	process identity.Process
	seen    *stacks.Process
	why     reason
	at      time.Time
	still   time.Duration
	hash    uint64
	rest    *activity.Rest
	signal  identity.Signal // that stopped it, if any
	mount   procfs.Mount    // that it waits for, if it is known
	finds   bool            // it waits where ranks find each other
	meets   activity.Meeting
	where   bool // its names may leave the node
	frames  bool // all of them leave with this record
}

// converter turns stacks into log records. It is pure but for the builder's buffer, and not
// safe for concurrent use.
type converter struct {
	builder *metadata.LogsBuilder
	most    int // frames
}

func newConverter(builder *metadata.LogsBuilder, host record.Host, most int) *converter {
	builder.SetHost(host)
	return &converter{builder, most}
}

// Bounds on texts of a record, in bytes, with the mark where one is cut.
const (
	maxFile     = 512
	maxFunction = 256
	maxNative   = 16 // frames
	maxUnread   = 4
	maxProblem  = 256
)

// textOf is how many bytes the frames of a record have.
func (c *converter) textOf(seen *stacks.Process) int {
	main, size := &seen.Threads[0], 0
	for _, f := range main.Python[:min(len(main.Python), c.most)] {
		size += min(len(f.File), maxFile) + min(len(f.Function), maxFunction)
	}
	for _, f := range main.Native[:min(len(main.Native), maxNative)] {
		size += min(len(f.Object), maxFile) + min(len(f.Symbol), maxFunction)
	}
	return size
}

// stack makes a record of a stack.
func (c *converter) stack(s *standing, observed time.Time) plog.Logs {
	main := &s.seen.Threads[0]
	head := record.Head{Trust: trust(main), Time: s.at, Observed: observed, Severity: record.Info, Text: describe(s)}
	a := c.builder.ProcessStack(head)
	a.Stamp(s.process)
	a.ThreadID(int64(main.TID))
	a.ProcessStackHash(name(s.hash))
	a.ProcessStackReason(string(s.why))
	a.ProcessStackStillNs(s.still.Nanoseconds())
	a.ProcessStackState(state(main.State))
	a.ProcessStackWaitClass(string(main.Wait.Class))
	a.ProcessStackCall(safetext.Clip(main.Wait.Call, maxFunction))
	a.ProcessStackKernelFunction(safetext.Clip(main.Wait.Function, maxFunction))
	a.ProcessStackKernelOwner(main.Wait.Owner)
	a.ProcessRuntimeDescription(s.seen.Python)
	a.ProcessStackMountPoint(s.mount.Point)
	a.ProcessStackMountSource(s.mount.Source)
	a.ProcessStackMountType(s.mount.Type)
	if s.finds {
		putMeeting(a, s)
	}
	s.rest.Write(a.Doing(), s.at)
	a.StampSignal(s.signal)
	if main.GIL {
		a.ProcessStackGil(true)
	}
	if main.Ending {
		a.ProcessStackEnding(true)
	}
	holder := holderOf(s.seen)
	if holder != nil {
		a.ProcessStackGilHolder(int64(holder.TID))
	}
	if unread := problems(s.seen); len(unread) > 0 {
		record.Texts(a.ProcessStackUnread, unread)
	}
	if !s.where {
		return c.builder.Emit()
	}
	a.ThreadName(main.Name)
	a.ProcessStackWhere(main.Where())
	if holder != nil {
		a.ProcessStackGilHolderWhere(holder.Where())
	}
	if own, ok := main.Own(); ok {
		a.CodeFilePath(safetext.Clip(own.File, maxFile))
		a.CodeFunctionName(safetext.Clip(own.Function, maxFunction))
		record.NotZero(a.CodeLineNumber, own.At())
	}
	if s.frames {
		c.frames(a, main)
	}
	return c.builder.Emit()
}

// putMeeting writes where the thread waits for the other ranks: the address of their store by its environment, and the
// socket for which it waits.
func putMeeting(a metadata.ProcessStack, s *standing) {
	if s.process.MasterAddr != "" && s.process.MasterPort > 0 {
		a.ServerAddress(s.process.MasterAddr)
		a.ServerPort(int64(s.process.MasterPort))
	}
	if peer := s.meets.Peer; peer.IsValid() {
		a.NetworkPeerAddress(peer.Addr().String())
		a.NetworkPeerPort(int64(peer.Port()))
	}
	a.NetworkConnectionState(connection(s))
}

// connection is how its connection stands, "" where that is not known. One that runs may have one while it sleeps.
func connection(s *standing) string {
	switch {
	case s.meets.State == procfs.Established:
		return "established"
	case s.meets.State == procfs.SynSent:
		return "syn_sent"
	case s.meets.Pauses && s.why == asleep:
		return "closed"
	}
	return ""
}

// frames writes what the thread is in.
func (c *converter) frames(a metadata.ProcessStack, main *stacks.Thread) {
	if len(main.Python) > c.most || len(main.Native) > maxNative {
		a.ProcessStackCut(true)
	}
	if len(main.Python) > 0 {
		frames := a.ProcessStackFrames()
		for _, f := range main.Python[:min(len(main.Python), c.most)] {
			one := metadata.FrameMapOn(record.On(frames.AppendEmpty().SetEmptyMap()))
			one.CodeFilePath(safetext.Clip(f.File, maxFile))
			one.CodeFunctionName(safetext.Clip(f.Function, maxFunction))
			record.NotZero(one.CodeLineNumber, f.At())
		}
	}
	if len(main.Native) > 0 {
		native := a.ProcessStackNative()
		for _, f := range main.Native[:min(len(main.Native), maxNative)] {
			native.AppendEmpty().SetStr(utf8(strings.TrimSpace(safetext.Clip(f.Symbol, maxFunction) + " in " + safetext.Clip(f.Object, maxFile))))
		}
	}
}

// doing makes a record of a rank that stands where it stood, and does something else.
func (c *converter) doing(f *follower, at time.Time, signal identity.Signal, observed time.Time) plog.Logs {
	still := at.Sub(f.told.since)
	does := cmp.Or(string(f.rest.Activity(at)), string(f.rest.Now.State), "of unknown state")
	a := c.builder.ProcessStackDoing(record.Head{
		Trust: record.Claimed, Time: at, Observed: observed, Severity: record.Info, Text: fmt.Sprintf("%s stands in the same place for %s, and is %s now", who(&f.Process), still.Round(time.Second), does),
	})
	a.Stamp(f.Process)
	a.ProcessStackHash(name(f.told.hash))
	a.ProcessStackStillNs(still.Nanoseconds())
	if f.told.class != "" {
		a.ProcessStackWaitClass(string(f.told.class))
	}
	if f.rest.Silence == socketstall.Overdue {
		a.ProcessStackWhere(f.told.where)
	}
	f.rest.Write(a.Doing(), at)
	a.StampSignal(signal)
	return c.builder.Emit()
}

// moving makes a record of a rank that is not known to stand there any more: it moved, ended, or is
// followed no more.
func (c *converter) moving(p *identity.Process, was *told, at, observed time.Time) plog.Logs {
	still := at.Sub(was.since)
	a := c.builder.ProcessStackMoving(record.Head{
		Trust: record.Claimed, Time: at, Observed: observed, Severity: record.Info, Text: fmt.Sprintf("%s is no longer known to stand where it stood for %s", who(p), still.Round(time.Second)),
	})
	a.Stamp(*p)
	a.ProcessStackHash(name(was.hash))
	a.ProcessStackStillNs(still.Nanoseconds())
	return c.builder.Emit()
}

// trust: frames of user space are the process's own words. Without any, all is the kernel's.
func trust(t *stacks.Thread) record.Trust {
	if len(t.Python)+len(t.Native) > 0 || t.Ending { // by names that were there
		return record.Claimed
	}
	return record.Proven
}

// holderOf is another thread that held the lock of Python's interpreter.
func holderOf(seen *stacks.Process) *stacks.Thread {
	for i := range seen.Threads[1:] {
		if t := &seen.Threads[1+i]; t.GIL {
			return t
		}
	}
	return nil
}

// problems say what could not be read.
func problems(seen *stacks.Process) []string {
	var texts []string
	for _, err := range append(append([]error(nil), seen.Errors...), seen.Threads[0].Errors...) {
		if len(texts) < maxUnread {
			texts = append(texts, utf8(safetext.Clip(err.Error(), maxProblem)))
		}
	}
	return texts
}

func describe(s *standing) string {
	main := &s.seen.Threads[0]
	var text strings.Builder
	text.WriteString(who(&s.process))
	switch s.why {
	case asleep:
		fmt.Fprintf(&text, " has not run for %s", s.still.Round(time.Second))
	case sameCall:
		fmt.Fprintf(&text, " has been in the same call for %s", s.still.Round(time.Second))
	case spinning:
		fmt.Fprintf(&text, " has executed nothing but one loop for %s", s.still.Round(time.Second))
	case awaited:
		fmt.Fprintf(&text, " is awaited by others of its job, and was here at each look for %s", s.still.Round(time.Second))
	case peerEnded:
		text.WriteString(" was here when a rank of its job ended")
	}
	if where := main.Where(); s.where && where != "" {
		text.WriteString(", at " + where)
	}
	fmt.Fprintf(&text, ": %s", words(main))
	return text.String()
}

// words say what a thread waits for.
func words(t *stacks.Thread) string {
	text := string(t.Wait.Class)
	if t.Wait.Function != "" {
		text += ", in " + safetext.Clip(t.Wait.Function, maxFunction) + " of the kernel"
	}
	if t.Wait.Owner != "" {
		text += " (" + t.Wait.Owner + ")"
	}
	return text
}

func who(p *identity.Process) string {
	text := fmt.Sprintf("pid %d", p.PID)
	if p.IsRank() {
		text += fmt.Sprintf(", rank %d", p.Rank)
	}
	if p.Comm == "" {
		return "a process (" + text + ")"
	}
	return p.Comm + " (" + text + ")"
}

func name(hash uint64) string { return fmt.Sprintf("%016x", hash) }

func state(letter byte) string {
	if letter == 0 {
		return ""
	}
	return string(rune(letter))
}

// utf8 is for texts that no builder checks.
func utf8(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
