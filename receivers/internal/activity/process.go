package activity

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Unknown marks a number that is not known.
const Unknown = -1

// Process is one process of a rank at one moment.
type Process struct {
	identity.Process
	State   socketstall.State
	Ending  bool          // it is a zombie, and its other threads end, too, or may
	CPU     time.Duration // used by all its threads since it began; negative when not known
	MainCPU time.Duration // of these by its main thread; negative when not known
	Polling time.Duration // spent in the kernel by the other threads: those of NCCL poll there while they wait
	Delayed time.Duration // for which its main thread could run and had no CPU; 0 when not known
	Polls   bool          // its main thread did nothing but poll, when it was last looked into
	NetNS   uint64        // inode of its network namespace, 0 when not known
	NCCL    bool          // libnccl or librccl is mapped
	Inside  *Inside       // nil: nobody has looked
}

// Kin are the processes that each rank has started, as far as they are known, by the rank's
// outermost process. A program that was sent into the background is no descendant any more.
func Kin(all []identity.Process) map[uint32][]uint32 {
	kin := map[uint32][]uint32{}
	for i := range all {
		if p := &all[i]; p.Inherited && p.RankPID != 0 {
			kin[p.RankPID] = append(kin[p.RankPID], p.PID)
		}
	}
	return kin
}

// Inside is what a silent rank does beyond its own CPU, by a look into its process tree.
type Inside struct {
	Compared bool     // with a look before: the rates are known
	IO       float64  // bytes a second that its processes read and wrote
	OnFile   bool     // its main thread waits for a file or in a page fault, or may do so
	Answered bool     // it does, and is woken again and again; or another thread is, or a child
	Pauses   bool     // it sleeps until a time comes, and was not woken since the look before: it waits for nobody
	Ready    bool     // its main thread could run all the time: it did, or had no turn
	Starved  float64  // threads beside its main one that could run and had no CPU, without those that poll
	Unserved bool     // what it waits for is a file of a FUSE mount whose daemon has no CPU
	Unsure   bool     // it may have been answered since the look before
	Children float64  // cores that its children use, and would use if they had them
	Limit    CPULimit // that holds it back; zero for none
	Pressure float64  // percent of ten seconds in which a task of this host waited for a CPU, 0 not known
	Busiest  Child    // of them
	Holder   *Holder  // that keeps it from going on while it rests, nil for none that is seen
	Blocked  Thread   // a thread beside its main thread that does not go on, zero for none that is seen
	Tree     []uint32 // its children, and theirs

	fuse   bool // another thread waits for a FUSE mount, and is not woken
	unseen int  // looks in a row at which a thread had been woken, and nobody knows where it had slept

	Syscall string // in which its main thread sleeps, "" for none
	Channel string // function of the kernel in which it sleeps, "" when not known
	File    string // that the call is about
}

// CPULimit is the limit of a cgroup on the CPU time of its processes.
type CPULimit struct {
	Cgroup    string
	Cores     float64
	Throttled float64 // share of its periods in which it held them back, since the look before
}

// Thread is one that sleeps in the kernel, takes no signal, and is not woken.
type Thread struct {
	TID                    uint32
	Syscall, Channel, File string
}

// Child is a descendant of a rank.
type Child struct {
	PID   uint32
	Comm  string
	Share float64 // cores
}

// From where on a process tree makes progress, in each interval between two looks.
const (
	// computes is the share of a core. A rank that waits for a collective, or in a lock,
	// sleeps, or polls now and then.
	computes = 0.2
	// transfers is bytes a second of files, or of sockets that are none of the job's. A
	// process that hangs still writes its log.
	transfers = 64 << 10
	// bout is for how long a thread runs at least between two sleeps, unless it only polls: it
	// looks whether there is something to do, and sleeps again. Where CPUs are scarce it waits for
	// one each time it wakes, so that it seems to want one all the time. Loops of Python and of Go
	// that sleep for a millisecond run for 11 to 14 µs (16 busy processes on 2 virtual CPUs, Linux
	// 6.18, 2026-11-26); one that computes runs until its turn is over, for a millisecond or more.
	bout = 100 * time.Microsecond
)

// Usage is what a process had used at one moment.
type Usage struct{ cpu, main, delayed, polling time.Duration }

// Usage is what the process has used.
func (p *Process) Usage() Usage { return Usage{p.CPU, p.MainCPU, p.Delayed, p.Polling} }

// Does is what the process tree did in the interval since before, and for which share of
// it. Elsewhere is bytes that it moved on sockets which are none of its job's.
func (p *Process) Does(before Usage, interval time.Duration, elsewhere uint64) (how socketstall.Activity, share float64) {
	if interval <= 0 || p.State.Halted() {
		return socketstall.Idle, 0
	}
	main := cores(p.MainCPU, before.main, interval)
	delayed := 0.0
	if !p.Polls {
		delayed = cores(p.Delayed, before.delayed, interval)
	}
	if p.Inside != nil && p.Inside.Ready { // a wait that is not over is not counted yet
		delayed = max(delayed, 1-main)
	}
	// The threads of NCCL poll in system calls while they wait: of a process that has
	// them counts what its threads compute beyond that.
	others := cores(p.CPU, before.cpu, interval) - main
	if p.NCCL {
		others -= 2 * cores(p.Polling, before.polling, interval)
	}
	switch in := p.Inside; {
	case main >= computes:
		return socketstall.Computing, main + delayed
	case main+delayed >= computes:
		return socketstall.Starved, main + delayed
	case others >= computes:
		return socketstall.ThreadComputing, others
	case in != nil && in.Compared && (max(0, others)+in.Starved >= computes || in.Unserved):
		return socketstall.Starved, 1
	case in != nil && in.Compared && in.Children >= computes:
		return socketstall.ChildComputing, 1
	case in != nil && in.Compared && (in.IO >= transfers || in.Answered), float64(elsewhere) >= transfers*interval.Seconds():
		return socketstall.IO, 1
	}
	return socketstall.Idle, 0
}

// cores is how many were used in the interval, 0 when not known.
func cores(now, before, interval time.Duration) float64 {
	if now < 0 || before < 0 {
		return 0
	}
	return max(0, float64(now-before)/float64(interval))
}
