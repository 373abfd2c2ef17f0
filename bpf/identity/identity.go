// Package identity answers who a process is: which rank of which job, in which
// container of which pod. It reads a process when it starts, keeps the answer
// for a while after it exits, and reports exits of the processes it knows.
package identity

import "time"

// Unknown marks an integer fact of a Process that no source gave.
const Unknown = -1

// Process is what is known of one process.
type Process struct {
	PID       uint32 // thread group id in the initial pid namespace
	ParentPID uint32
	StartTime time.Time
	// StartNS is the start on the boot clock, cut to a tick of 10 ms, so that the kernel
	// and /proc agree: boot, pid and this are one process and no other. 0 when not known.
	StartNS uint64
	Comm    string // executable name as the kernel holds it, at most 15 bytes

	ContainerID string // 64 hex digits, "" when none
	PodUID      string // lower case, with dashes, "" when none
	CgroupPath  string

	Rank       int // Unknown (-1) when none
	LocalRank  int
	WorldSize  int
	JobID      string
	MasterAddr string // MASTER_ADDR of the store
	MasterPort int    // 0 when none
	// Rendezvous is the job of a rank without JobID: MASTER_ADDR:PORT/WORLD, or what Candidates
	// was told of it.
	Rendezvous string
	// Attempt is which start of the job this is, as its launcher counts: 1 is the first,
	// 0 is not known.
	Attempt int
	// Trace is where the job says that the rank's work belongs.
	Trace Trace
	// RankPID and RankStart are the outermost process of the rank: the same for all of its
	// processes, others after a restart. 0 when there is none.
	RankPID   uint32
	RankStart time.Time

	// Wrapped is true for the process whose end is its rank's, where RankPID is a wrapper that has started it.
	Wrapped bool

	// Domain is whose job it is, as the kernel tells it and no environment can: "" when
	// not known. A job is its id inside its domain.
	Domain string
	// Drill is true for a process that a drill started, as it has proven.
	Drill bool

	// Inherited is true for a process that carries the identity of its nearest
	// known ancestor: a worker forked without exec (DataLoader), or a program that
	// the rank started and that has its environment (a compiler, a shell's child).
	// It is false for the outermost process of a rank, or for the one that it wraps, once that is known.
	Inherited bool
	// TakesPart is true for a process that has taken part in the collectives of its job, as a receiver has seen. Ranks alone says so.
	TakesPart bool
	// Ended is true where the process had ended by the time that Lookup was asked for: its number
	// may be another's by now.
	Ended bool
}

// Born is a process and no other until the machine boots again. Without StartNS it is not known which.
type Born struct {
	PID     uint32
	StartNS uint64
}

// Born is what tells the process from others that have its number before and after it.
func (p *Process) Born() Born { return Born{p.PID, p.StartNS} }

// IsRank reports whether the process is a rank or a descendant of one.
func (p Process) IsRank() bool { return p.Rank != Unknown }

// Leads reports whether its end is the rank's, and it is none that runs beside the rank.
func (p Process) Leads() bool {
	return p.IsRank() && !p.Inherited && (p.RankPID == p.PID || p.Wrapped)
}

// Exit is the end of a process that was known.
type Exit struct {
	Process
	Time     time.Time
	Code     int  // exit status 0-255, 0 when killed by a signal
	Signal   int  // signal that ended it, 0 when it returned
	CoreDump bool // the kernel was asked to write a core
	// OOMVictim is true when the kernel's OOM killer had marked it.
	OOMVictim bool
	// Helper is true for what a launch script ran beside the rank: grep, a health check; and for
	// a wrapper of the process whose end is the rank's. Its end is not the rank's, and it has no RankPID.
	Helper bool
	// Signalled is the signal that explains the end: the one that ended the process, or
	// one that had asked it to end at most two minutes before. Its Number is 0 when none
	// does, or when the kernel does not tell.
	Signalled Signal
	// Others are the other ranks of its job here, where Signalled is a SIGTERM or SIGINT that
	// may have been meant for it alone. They are looked at a second after its end.
	Others Others
	// Wrapper is the outermost process of the rank where this is the end of a descendant that
	// it passed on as its own, such as a shell that ends with 128 + signal. Nil otherwise. The
	// descendant's end was told before, with Inherited set. Or it is the outermost process, which ended before
	// this one, and was told as a Helper then.
	Wrapper *Wrapper
	// Child is a child that crashed within seconds before a rank ended with a status that does not
	// tell of it, as a worker of a DataLoader. It may be why. Nil for none.
	Child *Child
	// Late is true where it happened while no agent ran, and was read at the next start.
	Late bool
}

// Failed reports whether the process ended by a signal or with another status than 0.
func (e Exit) Failed() bool { return e.Signal != 0 || e.Code != 0 }

// Resolver answers who a process is. The identity extension implements it; the
// receivers find it by component id.
type Resolver interface {
	// Lookup returns the process that had this pid at that moment, or, when it
	// was never seen, its known parent's identity with Inherited set.
	Lookup(pid, parentPID uint32, at time.Time) (Process, bool)
	// Exits calls fn for each exit of a known rank process until cancel is
	// called. fn must not block.
	Exits(fn func(Exit)) (cancel func())
	// Ranks returns the living processes of ranks: those that a launcher started
	// and, with Inherited set, their descendants as far as they are known. A worker
	// forked without exec is known once it was asked for or has exited.
	Ranks() []Process
}

// Keeps is a Resolver whose knowledge of signals can be kept for the process after this: the kernel side forgets it with
// this one, where nothing is pinned.
type Keeps interface {
	// Sent returns the signals to a living process that explain how it stands, or how it may end soon; false where there are none.
	Sent(p Process) (Sent, bool)
	// WasSent says what the process before this knew. What does not hold any more is of no effect.
	WasSent(p Process, s Sent)
}

// Sent is what others have sent a living process, as it is kept.
type Sent struct {
	Asked    Signal // to end, lately; Number is 0 for none
	Stopped  Signal // and it is stopped since
	Switches uint64 // of its main thread, where it is stopped: with another number it has run since
}

// Variables are those by which launchers say to a process which rank it is, for an operator.
const Variables = "RANK and WORLD_SIZE (torchrun, accelerate, deepspeed), SLURM_PROCID and SLURM_STEP_NUM_TASKS (srun), " +
	"OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (mpirun), PMI_RANK and PMI_SIZE (MPICH, Intel MPI), " +
	"JAX_PROCESS_ID and JAX_NUM_PROCESSES"

// Candidates is a Resolver that also knows who may be a rank and does not say so.
type Candidates interface {
	// Unranked returns living interpreters that are no ranks, as far as anything says.
	Unranked() []Process
	// Ranked says which rank one of these is, as its calls show. Its environment knows better:
	// what that says by then counts.
	Ranked(p Process, is Place)
}

// Place is which rank a process is, and where it meets the others of its job.
type Place struct {
	Rank, WorldSize int
	Rendezvous      string // the same for all ranks of the job, another for each job
}

// Members is a Resolver that is told who takes part in a job: under a wrapper the outermost process of a
// rank does not.
type Members interface {
	// Joined says that a process of a rank has connections of collectives.
	Joined(p Process)
	// Trains says that a process of a rank has libraries of a training, and that a launcher above it has none.
	Trains(p Process)
	// Led says that the end of a process is its rank's, as the agent before this one knew.
	Led(p Process)
}

// Failing is a Resolver that is told of what ends programs.
type Failing interface {
	// Raised says that a process of a rank displays an exception that its program did not catch. It is no
	// sign that it waits for something: a peer, or an address.
	Raised(p Process)
}

// Endings is a Resolver that can also say of a process that nobody watched whether it is there.
type Endings interface {
	// EndedUnseen reports whether the kernel shows that a process runs no more, and its end was not seen;
	// false where nothing shows it.
	EndedUnseen(Born) bool
}

// Stops is a Resolver that can also say what stopped a process.
type Stops interface {
	// Stopped returns the signal that stopped a living process, and who sent it; false
	// where none did, it was continued, or the kernel does not tell.
	Stopped(p Process) (Signal, bool)
}

// Asks is a Resolver that can also say which ranks were asked to end and live.
type Asks interface {
	// Asked returns the living ranks that others have asked to end within the last two minutes, a second ago
	// at least, or sent another signal by which owners and schedulers say that the end is near: SIGHUP, SIGINT,
	// SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM. None where the kernel does not tell.
	Asked() []Asked
}

// Asked is a rank that was asked to end, and lives.
type Asked struct {
	Process
	Signal Signal
	Others Others
}
