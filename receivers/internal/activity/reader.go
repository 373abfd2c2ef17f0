// Package activity tells what a rank process does: the state of its main thread,
// the CPU it has used, its network namespace, and whether NCCL is loaded.
package activity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Looks for NCCL in a memory map, which may take some milliseconds each.
const (
	maxTries   = 6
	firstPause = 10 // rounds until the second look, twice that until the third, ...
)

// Reader reads processes and remembers of each what does not change. It is not
// safe for concurrent use.
type Reader struct {
	fs    *procfs.FS
	clock func() time.Time
	known map[uint32]*known
	trees trees
	looks sync.WaitGroup // for NCCL and for daemons, beside the snapshots

	daemons daemons
}

// known is what is remembered of a process.
type known struct {
	startTicks uint64
	stat       procfs.Stat // as last read
	foreign    bool        // this /proc shows somebody else under that number
	netns      uint64
	rounds     int

	held  traceStop
	polls bool // its main thread, when last looked into

	alone    time.Time // since then its main thread has ended, and others live; zero: not so
	unserved int       // looks in a row after which it was not known whether it, and who serves it, have a CPU

	nccl   *atomic.Bool
	tries  int
	nextAt int // round of the next look for NCCL
}

// aloneFor is for how long looks must find other threads alive until the main thread alone has ended. A thread
// that was told to end has taken the signal from its mask a moment before it is marked as one that ends
// (get_signal, kernel/signal.c): on a busy machine a look may find it there.
const aloneFor = 500 * time.Millisecond

// New makes a reader of a proc file system.
func New(fs *procfs.FS) *Reader {
	return &Reader{fs: fs, clock: time.Now, known: map[uint32]*known{}, trees: newTrees(), daemons: daemons{demand: NewDemand(fs), isFUSE: isFUSE, room: mostNames}}
}

// Read adds to p what its process does now. What cannot be read is not known:
// "" and negative. The libraries are looked for only if asked.
func (r *Reader) Read(p identity.Process, libraries bool) Process {
	out := Unread(p)
	stat, err := r.fs.Stat(p.PID)
	if err != nil {
		return out
	}
	k := r.remember(p, &stat)
	if k.foreign {
		return out
	}
	out.State, out.CPU, out.NetNS = stateOf(stat.State), stat.CPU, r.namespace(p.PID, k)
	switch {
	case stat.State == traced:
		out.State = r.holds(p.PID, k)
	case out.State == socketstall.Zombie:
		if ending, err := r.fs.Ending(p.PID); ending || err != nil {
			k.alone = time.Time{}
		} else if k.alone.IsZero() {
			k.alone = r.clock()
		}
		out.Ending = k.alone.IsZero() || r.clock().Sub(k.alone) < aloneFor
	}
	if main, err := r.fs.ThreadStat(p.PID, p.PID); err == nil {
		out.MainCPU = main.CPU
		out.Polling = max(0, stat.System-main.System)
		if turns, err := r.fs.Turns(p.PID); err == nil {
			out.Delayed, out.Polls = turns.Delayed, k.polls
		}
	}
	if libraries {
		r.lookForNCCL(p.PID, k)
	}
	out.NCCL = k.nccl.Load()
	return out
}

// Unread is p with nothing known of what it does.
func Unread(p identity.Process) Process {
	return Process{Process: p, CPU: Unknown, MainCPU: Unknown}
}

// Keep forgets all processes but those for which alive says so.
func (r *Reader) Keep(alive func(pid uint32) bool) {
	for pid := range r.known {
		if !alive(pid) {
			delete(r.known, pid)
		}
	}
}

// remember returns what is known of the process that stat is of. A process met for
// the first time must have begun when identity says it did: where the root shows
// another pid namespace the number is somebody else's.
func (r *Reader) remember(p identity.Process, stat *procfs.Stat) *known {
	k := r.known[p.PID]
	if k == nil || k.startTicks != stat.StartTicks {
		k = &known{startTicks: stat.StartTicks, nccl: new(atomic.Bool)}
		k.foreign = stat.StartNS() != p.StartNS
		r.known[p.PID] = k
	}
	k.stat = *stat
	k.rounds++
	return k
}

// namespace returns the number of the network namespace. A launcher may enter one
// (ip netns exec) after its first look, so a young process is asked again.
func (r *Reader) namespace(pid uint32, k *known) uint64 {
	const young, now = 10, 32
	if k.netns != 0 && k.rounds > young && k.rounds%now != 0 {
		return k.netns
	}
	if number, err := r.fs.Namespace(pid, "net"); err == nil {
		k.netns = number
	}
	return k.netns
}

// lookForNCCL looks for NCCL, or its AMD twin, in the memory map of a process, beside
// the snapshots, now and then until it is there: a process may load it after its
// first sockets.
func (r *Reader) lookForNCCL(pid uint32, k *known) {
	if k.nccl.Load() || k.tries >= maxTries || k.rounds < k.nextAt {
		return
	}
	k.nextAt = k.rounds + firstPause<<k.tries
	k.tries++
	there := k.nccl
	r.looks.Go(func() {
		if found, err := r.fs.Libraries(pid, "libnccl.so", "librccl.so"); err == nil && len(found) > 0 {
			there.Store(true)
		}
	})
}

// Wait waits until no look beside the snapshots is under way. The longest reads the names of the open files
// of this host.
func (r *Reader) Wait() { r.looks.Wait() }

// stateOf names a state letter (fs/proc/array.c, task_state_array).
func stateOf(letter byte) socketstall.State {
	switch letter {
	case 'R':
		return socketstall.Running
	case 'S', 'I':
		return socketstall.Sleeping
	case 'D':
		return socketstall.DiskSleep
	case 'T', 't':
		return socketstall.Stopped
	case 'Z', 'X':
		return socketstall.Zombie
	}
	return ""
}
