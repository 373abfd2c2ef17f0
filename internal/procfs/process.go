package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds on what is read of one process.
const (
	maxStat    = 4 << 10
	maxCgroup  = 16 << 10
	maxEnviron = 256 << 10
	maxCmdline = 4 << 10
)

// Tick is the unit of times in /proc: 1/USER_HZ seconds, and USER_HZ is 100 on every
// architecture we build for.
const Tick = 10 * time.Millisecond

// PIDs lists the processes there are, in order.
func (f *FS) PIDs() ([]uint32, error) {
	names, err := Patiently(f, f.root, func() ([]string, error) {
		directory, err := os.Open(f.root)
		if err != nil {
			return nil, err
		}
		defer directory.Close()
		return directory.Readdirnames(-1)
	})
	if err != nil {
		return nil, fmt.Errorf("list processes: %w: mount the host's /proc there, or set HOST_PROC", err)
	}
	pids := make([]uint32, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 32); err == nil && pid != 0 {
			pids = append(pids, uint32(pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// Stat is what /proc/PID/stat says of a process or a thread.
type Stat struct {
	PID, ParentPID uint32
	Name           string // as the kernel has it, valid UTF-8
	State          byte   // a letter of fs/proc/array.c, task_state_array
	Threads        uint64
	Faults         uint64        // pages that it took or found without a read
	CPU            time.Duration // used by it in user and kernel mode
	System         time.Duration // of that in kernel mode
	Reaped         time.Duration // used by its children that have ended and were waited for
	StartTicks     uint64        // since boot; tells it from a later process with the same number
	Kernel         bool          // a kernel thread
	Exiting        bool          // it is ending, and gives back what it holds
}

// Ended reports whether nothing of it runs any more. A leader that has ended while its
// threads live on is a zombie too (kernel/exit.c), but its process goes on.
func (s *Stat) Ended() bool {
	return s.State == 'X' || s.State == 'x' || s.State == 'Z' && s.Threads <= 1
}

// Stopped reports whether a signal or a debugger holds it.
func (s *Stat) Stopped() bool { return s.State == 'T' || s.State == 't' }

// StartNS is when it began, on the boot clock.
func (s *Stat) StartNS() uint64 { return s.StartTicks * uint64(Tick) }

// Stat reads the stat of a process.
func (f *FS) Stat(pid uint32) (Stat, error) { return f.stat(pid, "stat") }

// ThreadStat reads the stat of one of its threads.
func (f *FS) ThreadStat(pid, tid uint32) (Stat, error) {
	return f.stat(pid, "task", strconv.FormatUint(uint64(tid), 10), "stat")
}

func (f *FS) stat(pid uint32, parts ...string) (Stat, error) {
	file, err := f.of(pid, maxStat, parts...)
	if err != nil {
		return Stat{}, err
	}
	s, err := ParseStat(file.Content)
	if err != nil {
		return Stat{}, fmt.Errorf("read %s: %w", f.path(pid, parts...), err)
	}
	return s, nil
}

// Flag and fields of a stat line, proc_pid_stat(5), counted from the state, which is
// field 3 there.
const (
	flagKernelThread = 0x00200000 // PF_KTHREAD, include/linux/sched.h
	flagExiting      = 0x00000004 // PF_EXITING, there
	fieldState       = 0
	fieldParent      = 1
	fieldFlags       = 6
	fieldFaults      = 7
	fieldUser        = 11
	fieldSystem      = 12
	fieldChildUser   = 13
	fieldChildSystem = 14
	fieldThreads     = 17
	fieldStart       = 19
)

// maxTicks is 87 years, beyond any uptime. Two of them are less than the longest Duration.
const maxTicks = 1 << 38

// ParseStat reads a stat line. The name in parentheses may contain anything,
// parentheses and spaces too, so it ends with the last one.
func ParseStat(line []byte) (Stat, error) {
	begin, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if begin < 0 || end < begin {
		return Stat{}, errors.New("no name in it")
	}
	fields := strings.Fields(string(line[end+1:]))
	if len(fields) <= fieldStart || len(fields[fieldState]) != 1 {
		return Stat{}, fmt.Errorf("not %d fields after the name", fieldStart+1)
	}
	var problem error
	number := func(text string, bits int) uint64 {
		n, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			problem = err
		}
		return n
	}
	ticks := func(field int) uint64 { return min(number(fields[field], 64), maxTicks) }
	user, system := ticks(fieldUser), ticks(fieldSystem)
	s := Stat{
		PID: uint32(number(strings.TrimSpace(string(line[:begin])), 32)), ParentPID: uint32(number(fields[fieldParent], 32)),
		Name: text(line[begin+1 : end]), State: fields[fieldState][0], Threads: number(fields[fieldThreads], 64), Faults: number(fields[fieldFaults], 64),
		CPU: time.Duration(user+system) * Tick, System: time.Duration(system) * Tick,
		Reaped: time.Duration(ticks(fieldChildUser)+ticks(fieldChildSystem)) * Tick, StartTicks: ticks(fieldStart),
	}
	flags := number(fields[fieldFlags], 64)
	s.Kernel, s.Exiting = flags&flagKernelThread != 0, flags&flagExiting != 0
	if problem != nil {
		return Stat{}, problem
	}
	return s, nil
}

// text makes what a process wrote valid UTF-8, which OTLP asks for.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "�")
}

// Cgroup reads /proc/PID/cgroup.
func (f *FS) Cgroup(pid uint32) ([]byte, error) {
	file, err := f.of(pid, maxCgroup, "cgroup")
	return file.Content, err
}

// User is who a process runs as: its real user id, in the initial user namespace. It is
// the first number of the line Uid of status, proc_pid_status(5).
func (f *FS) User(pid uint32) (uint32, error) {
	file, err := f.of(pid, maxStat, "status")
	if err != nil {
		return 0, err
	}
	user, err := userIn(file.Content)
	if err != nil {
		return 0, fmt.Errorf("read status of process %d: %w", pid, err)
	}
	return user, nil
}

func userIn(status []byte) (uint32, error) {
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			if numbers := strings.Fields(ids); len(numbers) > 0 {
				uid, err := strconv.ParseUint(numbers[0], 10, 32)
				return uint32(uid), err
			}
		}
	}
	return 0, errors.New("no user in it")
}

// Environ reads the environment that a process began with, 256 KiB of it at most.
func (f *FS) Environ(pid uint32) (File, error) { return f.of(pid, maxEnviron, "environ") }

// Arguments reads those that a process was executed with, its name first. It may have written over them.
func (f *FS) Arguments(pid uint32) ([]string, error) {
	file, err := f.of(pid, maxCmdline, "cmdline")
	if err != nil || len(file.Content) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(file.Content), "\x00"), "\x00"), nil
}

// Turns are for how long a thread has run, and has waited for a CPU. The kernel adds a wait when it is
// over (sched_info_arrive, kernel/sched/stats.h): of a thread that waits on nothing shows.
type Turns struct{ Ran, Delayed time.Duration }

// Turns are those of the first thread of a process: the first two numbers of schedstat, in ns
// (Documentation/scheduler/sched-stats.rst). There are none where the kernel is built without
// CONFIG_SCHED_INFO.
func (f *FS) Turns(pid uint32) (Turns, error) {
	file, err := f.of(pid, maxStat, "schedstat")
	return turnsIn(pid, file, err)
}

// ThreadTurns are those of a thread of a process.
func (f *FS) ThreadTurns(pid, tid uint32) (Turns, error) {
	file, err := f.of(pid, maxStat, "task", strconv.FormatUint(uint64(tid), 10), "schedstat")
	return turnsIn(pid, file, err)
}

func turnsIn(pid uint32, file File, err error) (Turns, error) {
	if err != nil {
		return Turns{}, err
	}
	turns, err := turnsOf(string(file.Content))
	if err != nil {
		return Turns{}, fmt.Errorf("read schedstat of process %d: %w", pid, err)
	}
	return turns, nil
}

func turnsOf(content string) (t Turns, err error) {
	numbers := strings.Fields(content)
	if len(numbers) < 2 {
		return t, fmt.Errorf("it has %d numbers", len(numbers))
	}
	for i, number := range [...]*time.Duration{&t.Ran, &t.Delayed} {
		ns, err := strconv.ParseInt(numbers[i], 10, 64)
		if err != nil {
			return Turns{}, err
		}
		*number = time.Duration(ns)
	}
	return t, nil
}

// Namespace returns the number of a namespace of a process: kind is "net", "pid", ….
func (f *FS) Namespace(pid uint32, kind string) (uint64, error) {
	file := f.path(pid, "ns", kind)
	if f.Foreign() {
		return 0, fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	link, err := Patiently(f, file, func() (string, error) { return os.Readlink(file) })
	if err != nil {
		return 0, err
	}
	number, ok := inodeOf(link, kind)
	if !ok {
		return 0, fmt.Errorf("read %s: %q is no namespace", file, link)
	}
	return number, nil
}

// OpenNamespace opens a namespace of a process, to enter it. The caller closes it.
func (f *FS) OpenNamespace(pid uint32, kind string) (*os.File, error) {
	file := f.path(pid, "ns", kind)
	if f.Foreign() {
		return nil, fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	// One that is opened too late is closed when it is collected.
	return Patiently(f, file, func() (*os.File, error) { return os.Open(file) })
}

// State says what a process can do.
type State string

// The states of a process.
const (
	Alive   State = "alive"
	Stopped State = "stopped" // by a signal, which SIGCONT ends, or by a debugger, which SIGCONT does not
	Gone    State = "gone"    // it has ended; a zombie too
	Unknown State = "unknown" // it cannot be read
)

// Process is a process, or a thread, at one moment.
type Process struct {
	Name       string
	State      State
	StartTicks uint64 // tells it from a later process with the same number
}

// Process looks whether a process lives.
func (f *FS) Process(pid uint32) Process { return process(f.Stat(pid)) }

// Thread looks whether one of its threads lives.
func (f *FS) Thread(pid, tid uint32) Process { return process(f.ThreadStat(pid, tid)) }

func process(s Stat, err error) Process {
	p := Process{Name: s.Name, State: Alive, StartTicks: s.StartTicks}
	switch {
	case errors.Is(err, ErrGone):
		p.State = Gone
	case err != nil:
		p.State = Unknown
	case s.Ended():
		p.State = Gone
	case s.Stopped():
		p.State = Stopped
	}
	return p
}
