package socketstall

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxTree bounds the descendants of a rank that are kept.
const maxTree = 64

// Doing is what the process tree of a rank does.
type Doing struct {
	At       int64    `json:"at,omitempty"` // time of the record that says so, 0: none has
	Activity Activity `json:"a,omitempty"`
	Silence  Silence  `json:"l,omitempty"`
	Acted    int64    `json:"ac,omitempty"` // when something of its process tree last went on, 0 not known
	Learned  bool     `json:"le,omitempty"` // which pauses are usual for it is known
	Watched  int64    `json:"w,omitempty"`  // since when the receiver watches it, 0 not known
	Syscall  string   `json:"s,omitempty"`  // in which its main thread sleeps
	Channel  string   `json:"c,omitempty"`  // function of the kernel in which it does
	File     string   `json:"f,omitempty"`  // that the call is about
	Pauses   bool     `json:"p,omitempty"`  // its main thread sleeps until a time comes, and waits for nobody
	Awaits   string   `json:"aw,omitempty"` // address of the process of no rank for whose answer it waits
	Child    string   `json:"n,omitempty"`  // the one that uses most CPU, or that holds a resting rank up
	ChildPID int64    `json:"i,omitempty"`  //
	Held     Held     `json:"hc,omitzero"`  // how that child holds it up
	Thread   Thread   `json:"th,omitzero"`  // one beside its main thread that does not go on
	Tree     []int64  `json:"t,omitempty"`  // its descendants
	Limit    string   `json:"lc,omitempty"` // cgroup whose CPU limit holds it back
	Milli    int64    `json:"lm,omitempty"` // that limit, in thousandths of a CPU
	Throttle int64    `json:"lt,omitempty"` // percent of periods in which it does
	Pressure int64    `json:"lp,omitempty"` // percent of the time in which tasks of the host wait for a CPU
	Stopper  string   `json:"z,omitempty"`  // which signal stopped it, or that child, from whom; "" not known
	Traced   bool     `json:"zt,omitempty"` // a debugger holds it, or that child: SIGCONT does not let it go on
}

// Held is what a child does that holds a resting rank up, the zero value for none.
type Held struct {
	State   State  `json:"s,omitempty"` // Stopped, Frozen, DiskSleep or Sleeping
	Awaited bool   `json:"a,omitempty"` // the main thread of the rank waits for it
	Syscall string `json:"y,omitempty"`
	Channel string `json:"c,omitempty"`
	File    string `json:"f,omitempty"`
}

// Thread is one beside the main thread of a rank that sleeps until a file system or a driver
// answers, the zero value for none.
type Thread struct {
	TID     int64  `json:"i,omitempty"`
	Syscall string `json:"y,omitempty"`
	Channel string `json:"c,omitempty"`
	File    string `json:"f,omitempty"`
}

// threadOf reads it.
func threadOf(a pcommon.Map) Thread {
	t := Thread{TID: atMost(a, "nccl.rank.thread_id", 1<<32)}
	if t.TID != 0 {
		t.Syscall, t.Channel, t.File = Text(a, "nccl.rank.thread_syscall"), Text(a, "nccl.rank.thread_wait_channel"), Text(a, "nccl.rank.thread_file")
	}
	return t
}

// Words say of the thread of a rank that it is blocked, "" where none is known.
func (t *Thread) Words() string {
	if t.TID == 0 {
		return ""
	}
	h := Held{State: DiskSleep, Syscall: t.Syscall, Channel: t.Channel, File: t.File}
	return fmt.Sprintf("its thread %d %s", t.TID, h.does(""))
}

// DoingOf reads it from a record of that time.
func DoingOf(a pcommon.Map, time int64) Doing {
	d := Doing{
		At:       time,
		Activity: word(a, "nccl.rank.activity", activities), Silence: word(a, "nccl.rank.silence", silences),
		Syscall: Text(a, "nccl.rank.syscall"), Channel: Text(a, "nccl.rank.wait_channel"), File: Text(a, "nccl.rank.file"), Child: Text(a, "nccl.rank.child_name"),
	}
	d.Pauses = flag(a, "nccl.rank.pauses")
	if at, err := netip.ParseAddrPort(Text(a, "nccl.rank.awaits")); err == nil {
		d.Awaits = at.String()
	}
	d.Stopper = stopperOf(a)
	d.Traced = d.Stopper != "" && byDebugger(a)
	d.Held, d.Thread = heldOf(a), threadOf(a)
	d.Limit = Text(a, "nccl.rank.cpu_limit_cgroup")
	d.Milli, d.Throttle, d.Pressure = atMost(a, "nccl.rank.cpu_limit_millicores", 1<<30), atMost(a, "nccl.rank.cpu_throttled_percent", 100), atMost(a, "nccl.rank.cpu_pressure_percent", 100)
	_, d.Learned = a.Get("nccl.rank.usual_phase_ns")
	d.Watched, d.Acted = ago(a, "nccl.rank.watched_ns", time), ago(a, "nccl.rank.rest_ns", time)
	if pid, _ := Number(a, "nccl.rank.child_pid"); pid > 0 {
		d.ChildPID = pid
	}
	if tree, found := a.Get("nccl.rank.tree"); found && tree.Type() == pcommon.ValueTypeSlice {
		for i := range min(tree.Slice().Len(), maxTree) {
			if pid := tree.Slice().At(i); pid.Type() == pcommon.ValueTypeInt && pid.Int() > 1 {
				d.Tree = append(d.Tree, pid.Int())
			}
		}
	}
	return d
}

// heldOf reads what a child does that holds the rank up.
func heldOf(a pcommon.Map) Held {
	h := Held{State: word(a, "nccl.rank.child_state", states), Syscall: Text(a, "nccl.rank.child_syscall"), Channel: Text(a, "nccl.rank.child_wait_channel"), File: Text(a, "nccl.rank.child_file")}
	h.Awaited = flag(a, "nccl.rank.child_awaited")
	return h
}

func flag(a pcommon.Map, name string) bool {
	v, found := a.Get(name)
	return found && v.Type() == pcommon.ValueTypeBool && v.Bool()
}

// atMost is a number that can be true, else 0.
func atMost(a pcommon.Map, name string, most int64) int64 {
	if n, found := Number(a, name); found && n > 0 && n <= most {
		return n
	}
	return 0
}

// stopperOf is the signal that stopped the process, and its sender, in words.
func stopperOf(a pcommon.Map) string {
	signal, name := Text(a, "signal.name"), Text(a, "signal.sender.name")
	pid, known := Number(a, "signal.sender.pid")
	user, _ := Number(a, "signal.sender.user_id")
	switch {
	case signal == "":
		return ""
	case known && byDebugger(a):
		return fmt.Sprintf("the debugger %s (pid %d) of user %d", cmp.Or(name, "without a name"), pid, user)
	case !known || name == "":
		return signal + " from the kernel"
	default:
		return fmt.Sprintf("%s from %s (pid %d) of user %d", signal, name, pid, user)
	}
}

// byDebugger reports whether a tracer holds the process (ptrace(2): a tracee in a ptrace stop
// does not act on SIGCONT until its tracer lets it go on).
func byDebugger(a pcommon.Map) bool { return Text(a, "signal.sender.relation") == "debugger" }

// Waits says in words for which child a resting rank waits, "" for none that is known.
func (d *Doing) Waits() string {
	does := d.Held.does(d.Stopper)
	if does == "" || d.ChildPID <= 0 || d.Progress() {
		return ""
	}
	child := fmt.Sprintf("its child process %s (pid %d)", cmp.Or(d.Child, "without a name"), d.ChildPID)
	if d.Held.Awaited {
		return "it waits for " + child + ", which " + does
	}
	return child + " " + does
}

// Halts reports whether the rank waits for a child that the kernel says does not go on.
func (d *Doing) Halts() bool {
	return d.Waits() != "" && d.Held.Awaited && (d.Held.State.Halted() || d.Held.Blocked())
}

// Blocked reports whether the child sleeps until a file system or a driver answers.
func (h *Held) Blocked() bool {
	return h.State == DiskSleep || h.State == Sleeping && OfFUSE(h.Channel)
}

// OfFUSE reports whether a function of the kernel is one in which threads wait for the daemon of
// a FUSE mount (fs/fuse/dev.c). They sleep there as in a lock, not in D, until a signal comes.
func OfFUSE(channel string) bool {
	return channel == "request_wait_answer" || strings.HasPrefix(channel, "fuse_")
}

// MountSpeaks reports whether the rank in that state, or the child that holds it up, waits for what
// the probe of FUSE names within seconds, with the mount: an answer of a daemon, or a page of a file.
func (d *Doing) MountSpeaks(state State) bool {
	if d.Progress() || state.Halted() {
		return false
	}
	if d.Waits() != "" {
		return d.Held.Blocked() && (OfFUSE(d.Held.Channel) || d.Held.Syscall == "")
	}
	return OfFUSE(d.Channel) || state == DiskSleep && d.Syscall == ""
}

// does says what the child does.
func (h *Held) does(stopper string) string {
	switch {
	case h.State == Stopped:
		return "is stopped (" + cmp.Or(stopper, "SIGSTOP or a debugger") + ")"
	case h.State == Frozen:
		return "is frozen: a freezer holds its cgroup"
	case h.Blocked() && strings.HasPrefix(h.File, "/"):
		return "is blocked on " + h.File + " (" + h.where() + ")"
	case h.Blocked() && OfFUSE(h.Channel):
		return "is blocked in a FUSE file system that does not answer (" + h.where() + ")"
	case h.State == DiskSleep:
		return "is blocked in the kernel (" + h.where() + "): a file system or a driver does not answer"
	case h.State == Sleeping && h.Awaited:
		return "is asleep in " + h.where()
	}
	return ""
}

// where is what the child sleeps in.
func (h *Held) where() string {
	where := cmp.Or(h.Syscall, "the kernel")
	if h.Channel != "" {
		where += ", " + h.Channel
	}
	return where
}

// Asks says for whose answer the rank waits, a process that is no rank of the job; "" where it does not, or something else
// holds it up.
func (d *Doing) Asks() string {
	if d.Awaits == "" || d.Activity != Idle || d.Waits() != "" || d.Thread.TID != 0 {
		return ""
	}
	return "it waits for an answer of the process at " + d.Awaits + ", no rank of the job"
}

// Pauses reports whether the main thread of a rank sleeps until a time comes, and nothing else of it goes on, or is held: it waits
// for no other rank. So does one that looks again and again whether a thread of it, or a file, is ready.
func (p *Process) Pauses() bool {
	d := &p.Doing
	return d.Pauses && !d.Progress() && !p.State.Halted() && d.Thread.TID == 0 && d.Waits() == ""
}

// Progress reports whether something of the process tree goes on.
func (d *Doing) Progress() bool { return d.Activity != "" && d.Activity != Idle }
