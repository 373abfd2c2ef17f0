package activity

import (
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// traced is the state of a thread that a tracer has stopped (fs/proc/array.c,
// task_state_array: "t (tracing stop)").
const traced = 't'

// traceStop is a process that its tracer had stopped at a look.
type traceStop struct {
	round    int
	switches uint64
}

// holds says what a tracer does that has stopped a process: a debugger holds it until
// somebody lets it go on. A profiler (py-spy, strace) stops it for a moment, again and again:
// the process has run between two looks, and only one of many looks meets such a moment.
func (r *Reader) holds(pid uint32, k *known) socketstall.State {
	status, err := r.fs.ThreadStatus(pid, pid)
	if err != nil {
		return socketstall.Sleeping
	}
	before := k.held
	k.held = traceStop{k.rounds, status.Switches}
	if before == (traceStop{k.rounds - 1, status.Switches}) {
		return socketstall.Stopped
	}
	return socketstall.Sleeping
}

// stopSignal is SIGSTOP, by which ptrace stops whom it attaches to, sent by the kernel
// (include/uapi/asm-generic/signal.h, siginfo.h).
const stopSignal, byTheKernel = 19, 0x80

// tracer is the signal that stands for the debugger that holds a process, none where no
// debugger does.
func (r *Reader) tracer(pid uint32) (signal identity.Signal) {
	status, err := r.fs.ThreadStatus(pid, pid)
	if err != nil || status.State != traced || status.Tracer == 0 {
		return signal
	}
	s := identity.Sender{Relation: identity.RelationDebugger, PID: status.Tracer}
	if stat, err := r.fs.Stat(s.PID); err == nil {
		s.Comm, s.StartNS, s.ParentPID = stat.Name, stat.StartNS(), stat.ParentPID
	}
	s.UserID, _ = r.fs.User(s.PID) // root where nobody may know
	return identity.Signal{Number: stopSignal, Code: byTheKernel, Sender: s}
}
