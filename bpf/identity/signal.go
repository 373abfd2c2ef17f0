package identity

import "time"

// Signal is a signal that a process was sent to end or to stop it, as the kernel saw it.
type Signal struct {
	Number int // 0: none is known
	Code   int // si_code: SI_USER, SEGV_MAPERR, …; its meaning depends on Number
	Time   time.Time
	Sender Sender
}

// Sender is who sent a signal.
type Sender struct {
	Relation Relation
	// The process that sent it. Zero where the kernel sent it on behalf of nobody.
	PID       uint32
	ParentPID uint32
	StartNS   uint64 // as Process.StartNS
	UserID    uint32 // in the initial user namespace, so that root of one is 0 in no other
	Comm      string // which the process chooses itself
	// ContainerID is the sender's container, "" when it has none or is not known any more.
	ContainerID string
}

// Relation is how a sender stands to the process that it sent a signal. Names decide
// nothing in it: it comes from process, pid namespace, user and ancestry.
type Relation string

// The relations; of several that hold, the first.
const (
	// RelationItself is the process itself: abort(3), raise(3).
	RelationItself Relation = "itself"
	// RelationContainer is the end of the process's container: its first process was sent
	// the signal by root from outside, or ended well or because it was asked to, which ends
	// all others.
	RelationContainer Relation = "container"
	// RelationFirst is the first process of the container, which failed by itself or of a
	// fault; that ends all others.
	RelationFirst Relation = "first_process"
	// RelationKernel is the kernel: a fault, the OOM killer, a limit, a terminal.
	RelationKernel Relation = "kernel"
	// RelationScheduler is what started the rank as root of the machine and under another
	// user: slurmstepd, systemd.
	RelationScheduler Relation = "scheduler"
	// RelationLauncher is what started the rank: torchrun, mpirun, a shell.
	RelationLauncher Relation = "launcher"
	// RelationAncestor is an ancestor of the launcher: the shell, or the supervisor, that runs it.
	RelationAncestor Relation = "ancestor"
	// RelationRank is a process of a rank of the same job.
	RelationRank Relation = "rank"
	// RelationHost is root of the machine, outside of the process's container.
	RelationHost Relation = "host"
	// RelationDebugger is a process that traces it, and holds it (ptrace).
	RelationDebugger Relation = "debugger"
	// RelationOther is anybody else: a shell of the job's user, kubectl exec.
	RelationOther Relation = "other"
)

// Others are the other ranks of a job on its host, when one was asked to end.
type Others struct {
	Lived int
	Asked int // to end, as that one
	// Wrapped is true where what asked runs the process for its rank alone: a timeout, a shell. Alike is
	// then how many of those that nobody asked each run under a program of the same name.
	Wrapped bool
	Alike   int
}

// Spared is how many nobody asked to end.
func (o Others) Spared() int { return o.Lived - o.Asked }

// stopping is how long after a process was asked to end its own end is still told as that.
// Slurm and Kubernetes wait 30 s before SIGKILL, some sites 90.
const stopping = 2 * time.Minute

// Flags of a sent signal, as in identity.bpf.c.
const (
	sentByKernel    = 1
	sentFromOutside = 2
	sentByInit      = 4
	sentToInit      = 8
	sentInExit      = 16
	sentFromHost    = 32
	sentAcrossUsers = 64
)

// sent is one signal as the kernel side notes it.
type sent struct {
	signal    uint32 // 0: none
	code      int32
	flags     uint32
	timeNS    uint64 // boot clock
	startNS   uint64 // of the sender, boot clock
	pid       uint32 // the sender
	parentPID uint32
	userID    uint32
	comm      string
}

// asked is the last signal of those by which others asked a process to end. first is when
// the first of them was sent and by which process, without the rest.
type asked struct {
	sent
	first sent
}

// signals are the last ones that a process was sent.
type signals struct {
	asked   asked // to end, by another process or the kernel
	own     sent  // to end, by itself or for what it did
	stopped sent  // to stop, and was not continued since
}

const (
	sigHUP  = 1
	sigINT  = 2
	sigQUIT = 3
	sigKILL = 9
	sigUSR1 = 10
	sigUSR2 = 12
	sigTERM = 15
)

// ending is the signal that explains an end: the one that ended the process, or else the
// one that had asked it to end shortly before. Itself is true for a signal of its own.
func (s *signals) ending(signal int, endNS uint64) (which *sent, itself bool) {
	own := signal != 0 && int(s.own.signal) == signal
	switch {
	case signal != 0 && int(s.asked.signal) == signal && (!own || s.own.timeNS <= s.asked.timeNS):
		return &s.asked.sent, false
	case (s.asked.signal == sigTERM || s.asked.signal == sigINT) && endNS-s.asked.timeNS <= uint64(stopping):
		return &s.asked.sent, false
	case own:
		return &s.own, true
	default:
		return nil, false
	}
}

// last is when the last of them was sent.
func (s *signals) last() uint64 { return max(s.asked.timeNS, s.own.timeNS, s.stopped.timeNS) }

// explainNothing reports whether signals that were sent long ago explain no end and no stop
// any more: a process that a SIGKILL or a stop holds may stay for long.
func (s *signals) explainNothing() bool {
	return s.asked.signal != sigKILL && s.own.signal != sigKILL && s.stopped.signal == 0
}

// byEndOfFirst reports whether the first process of a pid namespace has sent it as it ended
// (zap_pid_ns_processes(), kernel/pid_namespace.c).
func (s *sent) byEndOfFirst() bool {
	return s.flags&sentByKernel != 0 && s.signal == sigKILL && s.flags&sentByInit != 0 && s.flags&sentInExit != 0
}

// relate says how the sender stands to the process as far as the kernel's record tells,
// and whether that is all that matters.
func (s *sent) relate(itself bool) (Relation, bool) {
	outside := s.flags&sentFromOutside != 0 && s.userID == 0
	switch {
	case s.byEndOfFirst():
		return RelationContainer, true
	case s.flags&sentByKernel != 0:
		return RelationKernel, true
	case itself:
		return RelationItself, true
	case outside && s.flags&sentToInit != 0:
		return RelationContainer, true
	default:
		return RelationOther, false
	}
}
