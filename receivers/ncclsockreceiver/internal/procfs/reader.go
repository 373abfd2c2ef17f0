// Package procfs reads what a rank process does: the state of its main thread,
// the CPU it has used, its network namespace, and whether NCCL is loaded.
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// tick is the unit of times in /proc: 1/USER_HZ seconds, and USER_HZ is 100 on
// every architecture we build for.
const tick = 10 * time.Millisecond

// startSlack is how far apart the start of a process in /proc and the one that
// identity knows may be: ticks, and a wall clock that is slewed.
const startSlack = 2 * time.Second

// Reader reads processes and remembers of each what does not change. It is not
// safe for concurrent use.
type Reader struct {
	root  string
	known map[uint32]*known
	slots chan struct{} // one token per memory map being read
}

// known is what is remembered of a process.
type known struct {
	startTicks uint64
	foreign    bool // this /proc shows somebody else under that number
	netns      uint64
	rounds     int

	nccl   *atomic.Bool
	tries  int
	nextAt int // round of the next look for NCCL
}

// New makes a reader of a proc file system: root, else HOST_PROC from the
// environment, else /proc.
func New(root string) *Reader {
	if root == "" {
		root = os.Getenv("HOST_PROC")
	}
	if root == "" {
		root = "/proc"
	}
	return &Reader{root: root, known: map[uint32]*known{}, slots: make(chan struct{}, maxStuckReads)}
}

// Read adds to p what its process does now. What cannot be read is not known:
// "" and negative. The libraries are looked for only if asked.
func (r *Reader) Read(p identity.Process, libraries bool) stall.Process {
	out := Unread(p)
	line, err := r.stat(p.PID, "stat")
	if err != nil {
		return out
	}
	k := r.remember(p, &line)
	if k.foreign {
		return out
	}
	out.State, out.CPU, out.NetNS = line.state, line.cpu, r.namespace(p.PID, k)
	if main, err := r.stat(p.PID, "task/"+strconv.Itoa(int(p.PID))+"/stat"); err == nil {
		out.MainCPU, out.Delayed = main.cpu, r.delayed(p.PID)
	}
	if libraries {
		r.lookForNCCL(p.PID, k)
	}
	out.NCCL = k.nccl.Load()
	return out
}

// delayed is how long the main thread has waited for a CPU: the second number of
// schedstat, in ns (Documentation/scheduler/sched-stats.rst). 0 where the kernel
// is built without CONFIG_SCHED_INFO.
func (r *Reader) delayed(pid uint32) time.Duration {
	raw, err := os.ReadFile(filepath.Join(r.root, strconv.Itoa(int(pid)), "schedstat"))
	if err != nil {
		return 0
	}
	numbers := strings.Fields(string(raw))
	if len(numbers) < 2 {
		return 0
	}
	ns, err := strconv.ParseInt(numbers[1], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}

// Unread is p with nothing known of what it does.
func Unread(p identity.Process) stall.Process {
	return stall.Process{Process: p, CPU: stall.Unknown, MainCPU: stall.Unknown}
}

// Keep forgets all processes but those for which alive says so.
func (r *Reader) Keep(alive func(pid uint32) bool) {
	for pid := range r.known {
		if !alive(pid) {
			delete(r.known, pid)
		}
	}
}

// remember returns what is known of the process that this line is of. A process
// met for the first time must have begun when identity says it did: where
// the root shows another pid namespace the number is somebody else's.
func (r *Reader) remember(p identity.Process, line *statLine) *known {
	k := r.known[p.PID]
	if k == nil || k.startTicks != line.startTicks {
		k = &known{startTicks: line.startTicks, nccl: new(atomic.Bool)}
		began, err := r.wall(line.startTicks)
		k.foreign = err != nil || began.Sub(p.StartTime).Abs() > startSlack
		r.known[p.PID] = k
	}
	k.rounds++
	return k
}

// wall turns ticks since boot into a time. /proc/uptime includes suspension, as
// start times do.
func (r *Reader) wall(ticks uint64) (time.Time, error) {
	raw, err := os.ReadFile(filepath.Join(r.root, "uptime"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read uptime: %w", err)
	}
	text, _, _ := strings.Cut(string(raw), " ")
	uptime, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read uptime: %w", err)
	}
	return time.Now().Add(time.Duration(ticks)*tick - time.Duration(uptime*float64(time.Second))), nil
}

// namespace returns the inode of the network namespace. A launcher may enter one
// (ip netns exec) after its first look, so a young process is asked again.
func (r *Reader) namespace(pid uint32, k *known) uint64 {
	const young, now = 10, 32
	if k.netns != 0 && k.rounds > young && k.rounds%now != 0 {
		return k.netns
	}
	text, err := os.Readlink(filepath.Join(r.root, strconv.Itoa(int(pid)), "ns/net"))
	if err != nil {
		return k.netns
	}
	number := strings.TrimSuffix(strings.TrimPrefix(text, "net:["), "]")
	if inode, err := strconv.ParseUint(number, 10, 64); err == nil {
		k.netns = inode
	}
	return k.netns
}

// statLine is what is read of a stat file.
type statLine struct {
	state      socketstall.State
	cpu        time.Duration
	startTicks uint64
}

// Fields of a stat file, proc_pid_stat(5), counted from the state, which is
// field 3 there.
const (
	fieldState  = 0
	fieldUser   = 11
	fieldSystem = 12
	fieldStart  = 19
)

// maxStat bounds what is read of a stat file.
const maxStat = 4 << 10

func (r *Reader) stat(pid uint32, file string) (statLine, error) {
	raw, err := os.ReadFile(filepath.Join(r.root, strconv.Itoa(int(pid)), file))
	if err != nil {
		return statLine{}, err
	}
	return parseStat(raw[:min(len(raw), maxStat)])
}

// parseStat reads a stat line. The name in parentheses may contain anything,
// parentheses and spaces too, so the fields begin after the last one.
func parseStat(raw []byte) (statLine, error) {
	at := bytes.LastIndexByte(raw, ')')
	fields := bytes.Fields(raw[at+1:])
	if at < 0 || len(fields) <= fieldStart {
		return statLine{}, fmt.Errorf("read stat: no name and %d fields in it", fieldStart+1)
	}
	var numbers [3]uint64
	for i, field := range [...]int{fieldUser, fieldSystem, fieldStart} {
		n, err := strconv.ParseUint(string(fields[field]), 10, 64)
		if err != nil {
			return statLine{}, fmt.Errorf("read stat: field %d: %w", field+3, err)
		}
		numbers[i] = n
	}
	// Times far beyond any uptime would overflow; they are nobody's.
	used := min(numbers[0], 1<<40) + min(numbers[1], 1<<40)
	return statLine{state: stateOf(fields[fieldState]), cpu: time.Duration(used) * tick, startTicks: min(numbers[2], 1<<40)}, nil
}

// stateOf names a state letter (fs/proc/array.c, task_state_array).
func stateOf(letter []byte) socketstall.State {
	switch string(letter) {
	case "R":
		return socketstall.Running
	case "S", "I":
		return socketstall.Sleeping
	case "D":
		return socketstall.DiskSleep
	case "T", "t":
		return socketstall.Stopped
	case "Z", "X":
		return socketstall.Zombie
	}
	return ""
}
