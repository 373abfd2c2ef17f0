//go:build linux

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/truth/judge"
)

// spinning is after how long a rank that spins in Python is named at the latest.
const spinning = time.Minute

func faults() []kind {
	return []kind{
		{name: "stopped", class: hang, cause: "SIGSTOP", do: func(t *trial) (int, error) { return t.stopped(t.rank) }},
		{name: "frozen", class: hang, cause: "cgroup freezer, as docker pause", do: (*trial).frozen},
		{name: "asleep", class: hang, cause: "the main thread sleeps in Python", do: func(t *trial) (int, error) { return t.hangs("sleep", "asleep|sleeps", 7, 14) }},
		{name: "asleep in C", class: hang, cause: "the main thread sleeps in a C library", do: func(t *trial) (int, error) { return t.hangs("usleep", "asleep|sleeps", 7, 14) }},
		{name: "asleep with the GIL", class: hang, cause: "a C extension sleeps and holds the GIL", do: func(t *trial) (int, error) { return t.hangs("gil", "asleep|sleeps", 7, 14) }},
		{name: "deadlock", class: hang, cause: "a threading.Lock that nobody releases", do: func(t *trial) (int, error) { return t.hangs("lock", "lock|futex|asleep|sleeps", 7, 14) }},
		{name: "waits for a child", class: hang, cause: "the rank reads the pipe of a child that says nothing", do: func(t *trial) (int, error) { return t.hangs("pipe", "asleep|sleeps|pipe|child", 7, 14) }},
		{name: "tries again", class: hang, cause: "the main thread tries again every second to open a file that does not come", do: func(t *trial) (int, error) { return t.hangs("tries", "asleep|sleeps", 10, 16) }},
		{name: "all send first", class: hang, cause: "each rank sends to the next before it receives, and all wait", do: (*trial).allSend},
		{name: "spins", class: hang, cause: "the main thread spins in Python", late: spinning, do: func(t *trial) (int, error) { return t.hangs("spin", "executes nothing but", 60, 70) }},
		{name: "spins in C", class: hang, cause: "a spin lock of the C library that nobody opens", late: spinning, do: func(t *trial) (int, error) { return t.hangs("spinlock", "executes nothing but", 60, 70) }},
		{name: "spins in C with the GIL", class: hang, cause: "the same, called so that no other thread of Python runs", late: spinning, do: func(t *trial) (int, error) { return t.hangs("spingil", "executes nothing but", 60, 70) }},
		{name: "three hangs", class: hang, cause: "the main thread sleeps, three times in one job; the third counts", do: (*trial).thrice},
		{name: "hang after a checkpoint", class: hang, cause: "12 s of writing to a slow mount, steps, then a deadlock", do: (*trial).afterCheckpoint},
		{name: "hang while the agent is killed", host: true, class: hang, cause: "SIGSTOP; the agent is killed and started meanwhile", do: (*trial).stoppedMeanwhile},
		{name: "other collective", class: hang, cause: "one rank calls broadcast where the others call all_reduce; of two ranks a statement that has both calls is right, too", do: (*trial).mismatch},
		{name: "disk stopped", class: storage, cause: "the FUSE daemon of a mount is stopped while a rank reads", do: func(t *trial) (int, error) { return t.diskStopped("read", t.disk.name+"/data") }},
		{name: "disk gone", class: storage, cause: "the FUSE daemon of a mount is stopped, then killed, while a rank reads", do: (*trial).diskGone},
		{name: "packets lost", class: network, apart: true, cause: "the router drops what two ranks send to each other", do: func(t *trial) (int, error) { return t.loses(true) }},
		{name: "packets lost one way", class: network, apart: true, cause: "the router drops what one rank sends to another", do: func(t *trial) (int, error) { return t.loses(false) }},
		{name: "exit status", class: software, cause: "os._exit(3)", do: func(t *trial) (int, error) { return t.dies("exit status 3", "exit", "3") }},
		{name: "exit status of a thread", class: software, cause: "os._exit(5) in a thread, as a watchdog ends its process", do: func(t *trial) (int, error) { return t.dies("exit status 5", "threadexit", "5") }},
		{name: "SystemExit", class: software, cause: "sys.exit(4)", do: func(t *trial) (int, error) { return t.dies("exit status 4|SystemExit: 4", "status", "4") }},
		{name: "SystemExit with words", class: software, cause: "sys.exit(\"no space for the checkpoint\")", do: func(t *trial) (int, error) {
			return t.dies("exit status 1|SystemExit: no space", "words", "no", "space", "for", "the", "checkpoint")
		}},
		{name: "CUDA error", class: cudaText, cause: "an exception with the words of a CUDA error", do: func(t *trial) (int, error) { return t.dies("CUDA error: an illegal memory access", "cuda") }},
		{name: "read-only file system", class: storage, cause: "EROFS that nobody catches", do: func(t *trial) (int, error) { return t.dies("Read-only file system", "readonly") }},
		{name: "exception", class: software, cause: "an exception that nobody catches", do: func(t *trial) (int, error) { return t.dies("ValueError: bad batch 3", "raise") }},
		{name: "exception and a slow end", class: software, cause: "an exception that nobody catches, then 25 s in a function of atexit", do: func(t *trial) (int, error) { return t.diesLate("raiselate") }},
		{name: "exception and a thread that stays", class: software, cause: "an exception that nobody catches, then 25 s in which a thread that is no daemon keeps the process", do: func(t *trial) (int, error) { return t.diesLate("raisethread") }},
		{name: "leaves its group", class: software, cause: "destroy_process_group() in the middle; the process lives on for a minute", do: (*trial).leavesGroup},
		{name: "gives up one of two groups", class: software, cause: "destroy_process_group() of a second group, which each step uses; the rank trains on in the first", do: (*trial).givesUpAGroup},
		{name: "segmentation fault", class: software, cause: "a read of address 0", do: func(t *trial) (int, error) { return t.dies("SIGSEGV", "segv") }},
		{name: "abort", class: software, cause: "os.abort()", do: func(t *trial) (int, error) { return t.dies("SIGABRT", "abort") }},
		{name: "C++ exception", class: software, cause: "a library throws what nobody catches", do: func(t *trial) (int, error) { return t.dies("std::runtime_error: weights.bin is damaged", "throw") }},
		{name: "other size", class: software, cause: "one rank gives all_reduce a larger tensor than the others; gloo ends a rank that gets more bytes than it expects, whichever is first", do: (*trial).otherSize},
		{name: "killed", class: operator, cause: "SIGKILL by another process", do: func(t *trial) (int, error) { return t.signalled(syscall.SIGKILL, "SIGKILL") }},
		{name: "leaves early", class: software, cause: "sys.exit(0) of one rank in the middle; of two ranks a statement that has both ends is right, too", do: (*trial).leaves},
		{name: "worker out of memory", class: memory, cause: "a DataLoader worker goes beyond the memory limit of its cgroup", do: func(t *trial) (int, error) { return t.outOfMemory("hoard", "0", strconv.Itoa(1<<30)) }},
		{name: "rank out of memory", class: memory, cause: "a rank goes beyond the memory limit of its cgroup", do: func(t *trial) (int, error) { return t.outOfMemory("hoardself") }},
		{name: "bus error", class: software, cause: "SIGBUS", do: func(t *trial) (int, error) { return t.signalled(syscall.SIGBUS, "SIGBUS") }},
		{name: "terminated", class: operator, cause: "SIGTERM to one rank alone", do: func(t *trial) (int, error) { return t.signalled(syscall.SIGTERM, "SIGTERM") }},
		{name: "out of descriptors", class: software, cause: "an OSError that nobody catches", do: func(t *trial) (int, error) { return t.dies("exit status 1", "files") }},
		{name: "disk full", class: diskFull, cause: "ENOSPC that nobody catches", do: func(t *trial) (int, error) { return t.dies("exit status 1", "fill") }},
		{name: "dies at its start", class: software, cause: "one rank fails to import a module, the others wait for it", do: (*trial).diesAtStart},
		{name: "crash loop", class: software, cause: "the same rank ends each start of the job; the third counts", do: (*trial).crashLoop},
		{name: "second fault", class: operator, cause: "SIGSTOP and SIGCONT of one rank, then SIGKILL of another", do: (*trial).second},
		{name: "two stopped", class: hang, cause: "SIGSTOP of two ranks at once", do: (*trial).twoStopped},
		{name: "debugger", class: operator, cause: "a debugger holds a rank (ptrace)", do: (*trial).debugged},
		{name: "worker asleep", class: hang, cause: "a DataLoader worker sleeps, its rank waits for it", do: (*trial).workerAsleep},
		{name: "worker stopped", class: hang, cause: "SIGSTOP of a DataLoader worker", do: (*trial).workerStopped},
		{name: "worker crashes", class: software, cause: "SIGSEGV of a DataLoader worker", do: (*trial).workerCrashes},
		{name: "worker raises", class: software, cause: "an exception in a DataLoader worker, which its rank raises again", do: (*trial).workerRaises},
		{name: "link down", class: network, apart: true, cause: "the network link of a rank's host goes down", do: (*trial).linkDown},
		{name: "host cut off", class: network, apart: true, cause: "the router drops all that one rank sends and gets", do: (*trial).cutOff},
		{name: "mapped file on a stopped disk", class: storage, cause: "a page fault on a FUSE mount whose daemon is stopped", do: func(t *trial) (int, error) { return t.diskStopped("map", t.disk.name+"/data") }},
		{name: "checkpoint to a stopped disk", class: storage, cause: "a write to a FUSE mount whose daemon is stopped", do: func(t *trial) (int, error) { return t.diskStopped("save", t.disk.name+"/checkpoint", "8") }},
		{name: "disk stopped under a thread", class: storage, cause: "a thread reads a FUSE mount whose daemon is stopped, the main thread joins it", do: func(t *trial) (int, error) { return t.diskStopped("threadread", t.disk.name+"/data") }},
		{name: "disk stopped under a DataLoader worker", class: storage, cause: "a worker reads a FUSE mount whose daemon is stopped, its rank waits for it", do: func(t *trial) (int, error) {
			return t.diskStoppedUnderWorker()
		}},
		{name: "frozen twice", class: hang, cause: "the cgroup freezer, twice in one job; the second time counts", do: (*trial).frozenTwice},
		{name: "stopped and given up", class: hang, cause: "SIGSTOP of one rank, later SIGKILL of all", do: (*trial).stoppedThenEnded},
		{name: "one rank starts again alone", class: software, apart: true, cause: "one rank crashes and is started again alone, as the container of a pod; the others die of it", do: (*trial).againAlone},
		{name: "packets lost after a restart", class: network, apart: true, cause: "a rank ends the job, which starts again under the same id; then packets are lost", do: (*trial).lossAfterRestart},
		{name: "disk stopped late in a checkpoint", class: storage, cause: "the FUSE daemon of a mount is stopped when a rank has written to it for 14 s or more", do: (*trial).diskStoppedLate},
		{name: "killed in a long pause", class: operator, cause: "SIGKILL of a rank that has computed for 14 s or more, while the others wait", do: (*trial).killedInPause},
		{name: "worker killed", class: operator, cause: "SIGKILL to a DataLoader worker", do: (*trial).workerKilled},
	}
}

func (t *trial) stopped(rank int) (int, error) {
	t.stalls("stopped")
	t.begin()
	if err := t.signal(rank, syscall.SIGSTOP); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(5, 9))
	if err := t.signal(rank, syscall.SIGCONT); err != nil {
		return running, err
	}
	return t.heals()
}

func (t *trial) stoppedMeanwhile() (int, error) {
	t.stalls("stopped")
	t.begin()
	if err := t.signal(t.rank, syscall.SIGSTOP); err != nil {
		return running, err
	}
	time.Sleep(time.Duration(t.chance.Int64N(int64(3 * time.Second))))
	if err := t.agentAgain(); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(5, 9))
	if err := t.signal(t.rank, syscall.SIGCONT); err != nil {
		return running, err
	}
	return t.heals()
}

// cgroup is the name of the trial's own cgroup. It has the lane in it.
func (t *trial) cgroup() string { return fmt.Sprintf("truth-%d-%d", t.lane.number, t.number) }

// freezer puts the rank into a cgroup that can be frozen.
func (t *trial) freezer() (*cgroup, error) {
	c, err := newCgroup("freezer", t.cgroup())
	if err != nil {
		return nil, err
	}
	t.later(func() error { return c.close(t.pid(t.rank)) })
	return c, c.add(t.pid(t.rank))
}

// freezeFor freezes for so long.
func (c *cgroup) freezeFor(lasts time.Duration) error {
	if err := c.freeze(true); err != nil {
		return err
	}
	time.Sleep(lasts)
	return c.freeze(false)
}

func (t *trial) frozen() (int, error) {
	c, err := t.freezer()
	if err != nil {
		return running, err
	}
	t.stalls("frozen|freezer")
	t.begin()
	if err := c.freezeFor(t.seconds(6, 10)); err != nil {
		return running, err
	}
	return t.heals()
}

func (t *trial) frozenTwice() (int, error) {
	c, err := t.freezer()
	if err != nil {
		return running, err
	}
	t.stalls("frozen|freezer")
	if err := c.freezeFor(t.seconds(8, 10)); err != nil {
		return running, err
	}
	if err := t.moves(time.Minute); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(3, 6))
	t.begin()
	if err := c.freezeFor(t.seconds(6, 10)); err != nil {
		return running, err
	}
	return t.heals()
}

// stoppedThenEnded is what an operator does who gives the job up. Its end is no fault.
func (t *trial) stoppedThenEnded() (int, error) {
	t.stalls("stopped")
	t.begin()
	if err := t.signal(t.rank, syscall.SIGSTOP); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(6, 9))
	t.truth.Healed = time.Now()
	if err := t.end(); err != nil {
		return ended, err
	}
	time.Sleep(4 * time.Second)
	return ended, nil
}

func (t *trial) againAlone() (int, error) {
	t.right("rank_exit", "SIGSEGV")
	t.rightAgain("SIGSEGV")
	t.begin()
	if err := t.order(t.rank, "segv"); err != nil {
		return ended, err
	}
	select {
	case <-t.ranks[t.rank].ended:
	case <-time.After(time.Minute):
		return ended, errors.New("the rank does not die")
	}
	time.Sleep(1500 * time.Millisecond)
	if err := t.job.again(t.rank); err != nil {
		return ended, err
	}
	time.Sleep(12 * time.Second) // longer than the others live
	return ended, nil
}

func (t *trial) lossAfterRestart() (int, error) {
	t.alsoOf("rank_exit") // of the start before
	if err := t.order(t.rank, "exit", "3"); err != nil {
		return ended, err
	}
	time.Sleep(2 * time.Second)
	if err := t.end(); err != nil {
		return ended, err
	}
	if err := t.start(-1, 0); err != nil {
		return ended, err
	}
	time.Sleep(known - time.Since(t.began))
	return t.loses(true)
}

func (t *trial) thrice() (int, error) {
	for range 2 {
		if _, err := t.does(t.rank, "sleep", 8*time.Second); err != nil {
			return running, err
		}
		time.Sleep(t.seconds(3, 6))
	}
	return t.hangs("sleep", "asleep|sleeps", 8, 9)
}

func (t *trial) afterCheckpoint() (int, error) {
	if _, err := t.checkpoint(12 * time.Second); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(4, 7))
	return t.hangs("lock", "lock|futex|asleep|sleeps", 9, 12)
}

// uses lets the rank use the mount while its daemon is stopped.
func (t *trial) uses(order ...string) error {
	if err := t.file(8); err != nil {
		return err
	}
	t.truth.Right = []judge.Answer{{Pattern: "fuse_stall", Says: regexp.MustCompile("stopped|gone"), At: place(order[0])}}
	t.begin()
	if err := syscall.Kill(t.disk.pid(), syscall.SIGSTOP); err != nil {
		return err
	}
	return t.order(t.rank, order...)
}

func (t *trial) diskStopped(order ...string) (int, error) {
	if err := t.uses(order...); err != nil {
		return running, err
	}
	return t.diskGoesOn()
}

// diskStoppedUnderWorker is a fault from when the worker reads: until then it starts, for many
// seconds where it imports PyTorch.
func (t *trial) diskStoppedUnderWorker() (int, error) {
	if err := t.uses("loaderread", t.disk.name+"/data"); err != nil {
		return running, err
	}
	worker, err := t.worker(time.Minute)
	if err != nil {
		return running, err
	}
	if err := t.waitsIn(worker, "request_wait_answer"); err != nil { // fs/fuse/dev.c
		return running, err
	}
	t.begin()
	return t.diskGoesOn()
}

// diskStoppedLate is a fault in a pause that was healthy.
func (t *trial) diskStoppedLate() (int, error) {
	const megabytes, speed = 128, 3 << 20 // bytes a second: 42 s
	t.truth.Right = []judge.Answer{{Pattern: "fuse_stall", Says: regexp.MustCompile("stopped|gone")}}
	if err := t.disk.rate(speed); err != nil {
		return running, err
	}
	t.later(func() error { return t.disk.rate(0) })
	if err := t.order(t.rank, "save", t.disk.name+"/checkpoint", strconv.Itoa(megabytes)); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(14, 18))
	t.begin()
	if err := syscall.Kill(t.disk.pid(), syscall.SIGSTOP); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(6, 10))
	if err := errors.Join(t.disk.rate(0), syscall.Kill(t.disk.pid(), syscall.SIGCONT)); err != nil {
		return running, err
	}
	t.truth.Healed = time.Now()
	if err := t.carried(t.rank, time.Minute); err != nil {
		return running, err
	}
	return healed, t.moves(time.Minute)
}

func (t *trial) killedInPause() (int, error) {
	if err := t.order(t.rank, "compute", "60"); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(14, 18))
	return t.signalled(syscall.SIGKILL, "SIGKILL")
}

// diskGoesOn lets the daemon go on after a while.
func (t *trial) diskGoesOn() (int, error) {
	time.Sleep(t.seconds(6, 10))
	if err := syscall.Kill(t.disk.pid(), syscall.SIGCONT); err != nil {
		return running, err
	}
	if err := t.carried(t.rank, time.Minute); err != nil {
		return running, err
	}
	return t.heals()
}

// diskGone ends with the rank's own end: its read fails.
func (t *trial) diskGone() (int, error) {
	if err := t.uses("read", t.disk.name+"/data"); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(3, 5))
	if err := syscall.Kill(t.disk.pid(), syscall.SIGKILL); err != nil {
		return running, err
	}
	if err := t.watch(8 * time.Second); err != nil {
		return running, err
	}
	return ended, t.remount()
}

func (t *trial) remount() error {
	_ = t.disk.close() // its daemon is dead
	d, err := mount(t.root, filepath.Join(t.folder, "disk"), filepath.Base(t.disk.name))
	if err != nil {
		return err
	}
	*t.disk = *d
	return nil
}

func (t *trial) mismatch() (int, error) {
	t.right("nccl_socket_stall", "collective|broadcast|asleep|sleeps|waits")
	t.right("nccl_hang", "broadcast|differs|did not do the same")
	t.right("rank_exit", ".")
	if len(t.ranks) == 2 { // which of the two is right is not known
		t.truth.Right = append(t.truth.Right, judge.Answer{Pattern: "nccl_hang", Says: regexp.MustCompile(`wait for each other: .*broadcast at train\.py`)})
	}
	t.begin()
	if err := t.order(t.rank, "broadcast"); err != nil {
		return ended, err
	}
	return ended, t.watch(12 * time.Second)
}

func (t *trial) allSend() (int, error) {
	t.truth.Right = []judge.Answer{{Pattern: "nccl_hang", Says: regexp.MustCompile("wait for each other"), At: place("around")}}
	t.begin()
	if err := t.order(t.rank, "around"); err != nil {
		return ended, err
	}
	return ended, t.watch(12 * time.Second)
}

// loses drops packets between neighbours: Gloo's all_reduce is a ring, and others exchange nothing.
func (t *trial) loses(both bool) (int, error) {
	to := (t.rank + 1) % t.world
	if t.chance.IntN(2) == 0 {
		to = (t.rank + t.world - 1) % t.world
	}
	pair := func(a, b int) {
		t.truth.Right = append(t.truth.Right, judge.Answer{
			Pattern: "nccl_socket_stall", Culprit: map[string]string{"rank": strconv.Itoa(a), "peer_rank": strconv.Itoa(b)}, Says: regexp.MustCompile("no packets get through"),
		})
	}
	pair(t.rank, to)
	if both {
		pair(to, t.rank)
	}
	t.begin()
	if err := t.network.Drop(t.rank, to); err != nil {
		return running, err
	}
	if both {
		if err := t.network.Drop(to, t.rank); err != nil {
			return running, err
		}
	}
	time.Sleep(t.seconds(3, 6))
	goesOn := t.moves(3 * time.Second)
	if err := t.network.Heal(); err != nil {
		return running, err
	}
	if goesOn == nil {
		return running, errors.New("the job goes on while packets are lost")
	}
	return t.reaches()
}

// signalled is a rank that a signal ends.
func (t *trial) signalled(s syscall.Signal, name string) (int, error) {
	t.right("rank_exit", name)
	t.rightAgain(name)
	t.begin()
	if err := t.signal(t.rank, s); err != nil {
		return ended, err
	}
	return ended, t.watch(8 * time.Second)
}

// diesAtStart is a job that never trains.
func (t *trial) diesAtStart() (int, error) {
	if err := t.end(); err != nil {
		return ended, err
	}
	t.fresh()
	t.place = place("start")
	t.right("rank_exit", "exit status 1")
	if err := t.job.begin(t.rank, "TRUTH_DIES=1"); err != nil {
		return ended, err
	}
	if err := t.carried(t.rank, time.Minute); err != nil { // it imports PyTorch first, which takes seconds
		return ended, err
	}
	t.begin()
	select {
	case <-t.ranks[t.rank].ended:
	case <-time.After(time.Minute):
		return ended, errors.New("the rank does not die")
	}
	return ended, t.watch(8 * time.Second)
}

// leaves: of two ranks nothing but the words of the one that dies tells that the other left it.
func (t *trial) leaves() (int, error) {
	if len(t.ranks) == 2 {
		t.truth.Right = append(t.truth.Right, judge.Answer{
			Pattern: "rank_exit", Culprit: map[string]string{"rank": strconv.Itoa(1 - t.rank)},
			Says: regexp.MustCompile("another rank of its job had ended with status 0 shortly before"),
		})
	}
	return t.dies("exit|ended|left|status 0", "leave")
}

// diesLate is a rank that fails, and whose process ends much later. It may be told by either.
func (t *trial) diesLate(order string) (int, error) {
	t.place = place(order)
	t.stalls("ValueError: bad batch 3")
	t.right("rank_exit", "ValueError: bad batch 3")
	t.rightAgain("ValueError: bad batch 3")
	t.begin()
	if err := t.order(t.rank, order, "25"); err != nil {
		return ended, err
	}
	select {
	case <-t.ranks[t.rank].ended:
	case <-time.After(time.Minute):
		return ended, errors.New("the rank does not die")
	}
	time.Sleep(8 * time.Second) // its peers die of it
	return ended, nil
}

// otherSize: gloo aborts the process that gets more than it expects; the others lose it.
func (t *trial) otherSize() (int, error) {
	t.truth.Right = []judge.Answer{{Pattern: "rank_exit", Says: regexp.MustCompile("data size doesn't match expected size")}}
	t.begin()
	if err := t.order(t.rank, "size"); err != nil {
		return ended, err
	}
	return ended, t.watch(12 * time.Second)
}

// leavesGroup is a rank that gives up the group that the others use, and goes on without them.
func (t *trial) leavesGroup() (int, error) {
	t.right("rank_exit", "closed its connections to the job")
	t.begin()
	if err := t.order(t.rank, "leavegroup", "60"); err != nil {
		return ended, err
	}
	time.Sleep(20 * time.Second)
	return ended, nil
}

// givesUpAGroup is a rank that gives up one of two groups while the others use both.
func (t *trial) givesUpAGroup() (int, error) {
	t.right("rank_exit", "closed a connection to the job")
	if err := t.order(t.rank, "second"); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(5, 9)) // it is in use
	t.begin()
	if err := t.order(t.rank, "giveup"); err != nil {
		return ended, err
	}
	time.Sleep(15 * time.Second)
	return ended, nil
}

func (t *trial) crashLoop() (int, error) {
	for range 2 {
		if err := t.order(t.rank, "exit", "3"); err != nil {
			return ended, err
		}
		time.Sleep(2 * time.Second)
		if err := t.end(); err != nil {
			return ended, err
		}
		if err := t.start(-1, 0); err != nil {
			return ended, err
		}
	}
	return t.dies("exit status 3", "exit", "3")
}

func (t *trial) second() (int, error) {
	first, second := t.other(), t.rank
	t.rank = first // what is told of the first fault is true, too
	t.alsoOf("nccl_socket_stall")
	t.alsoOf("nccl_hang")
	t.rank = second
	if err := t.signal(first, syscall.SIGSTOP); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(4, 6))
	for r := range t.world {
		if err := t.signal(r, syscall.SIGCONT); err != nil {
			return running, err
		}
	}
	time.Sleep(t.seconds(2, 4))
	return t.signalled(syscall.SIGKILL, "SIGKILL")
}

func (t *trial) twoStopped() (int, error) {
	first, second := t.rank, t.other()
	for _, t.rank = range []int{second, first} {
		t.stalls("stopped")
	}
	if err := t.signal(second, syscall.SIGSTOP); err != nil {
		return running, err
	}
	t.later(func() error { return t.signal(second, syscall.SIGCONT) })
	t.begin()
	if err := t.signal(first, syscall.SIGSTOP); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(5, 8))
	for _, r := range []int{first, second} {
		if err := t.signal(r, syscall.SIGCONT); err != nil {
			return running, err
		}
	}
	return t.heals()
}

// debugged attaches to the main thread, as gdb does.
func (t *trial) debugged() (int, error) {
	t.stalls("stopped|debugger|traced")
	t.begin()
	if err := t.traced(t.seconds(6, 10), 0); err != nil {
		return running, err
	}
	return t.heals()
}

func (t *trial) workerStopped() (int, error) {
	t.stalls("stopped|worker|child")
	t.right("dataloader_hang", "stopped")
	if err := t.order(t.rank, "loader", "6"); err != nil {
		return running, err
	}
	worker, err := t.worker(20 * time.Second)
	if err != nil {
		return ended, err
	}
	t.begin()
	if err := syscall.Kill(worker, syscall.SIGSTOP); err != nil {
		return ended, err
	}
	time.Sleep(t.seconds(8, 12))
	if err := syscall.Kill(worker, syscall.SIGCONT); err != nil {
		return ended, err
	}
	if err := t.carried(t.rank, time.Minute); err != nil {
		return running, err
	}
	return t.heals()
}

// workerAsleep is a fault from when the worker sleeps: until then it starts, for seconds.
func (t *trial) workerAsleep() (int, error) {
	t.place = place("loadersleep")
	t.stalls("asleep|sleeps|child|worker")
	lasts := t.seconds(8, 14)
	if err := t.order(t.rank, "loadersleep", fmt.Sprintf("%.0f", lasts.Seconds())); err != nil {
		return running, err
	}
	worker, err := t.worker(time.Minute)
	if err != nil {
		return running, err
	}
	if err := t.waitsIn(worker, nanosleep); err != nil {
		return running, err
	}
	t.begin()
	if err := t.carried(t.rank, lasts+time.Minute); err != nil {
		return running, err
	}
	return t.heals()
}

// workerCrashes is a fault from when the worker crashes: until then it starts, for seconds.
func (t *trial) workerCrashes() (int, error) {
	t.right("dataloader_hang", "SIGSEGV")
	t.right("rank_exit", "SIGSEGV|exit status 1")
	t.rightAgain("SIGSEGV|exit status 1")
	if err := t.order(t.rank, "loadersegv"); err != nil {
		return running, err
	}
	worker, err := t.worker(time.Minute)
	if err != nil {
		return ended, err
	}
	outlast(worker)
	t.begin()
	return ended, t.watch(12 * time.Second)
}

// workerRaises is a fault from when the worker raises, as workerCrashes.
func (t *trial) workerRaises() (int, error) {
	const reason = "Caught ValueError in DataLoader worker|bad row 3"
	t.place = place("loaderraise")
	t.right("rank_exit", reason)
	t.rightAgain(reason)
	if err := t.order(t.rank, "loaderraise"); err != nil {
		return ended, err
	}
	worker, err := t.worker(time.Minute)
	if err != nil {
		return ended, err
	}
	if err := t.waitsIn(worker, nanosleep); err != nil {
		return ended, err
	}
	if err := t.waitsNoMore(worker, nanosleep); err != nil {
		return ended, err
	}
	t.begin()
	return ended, t.watch(12 * time.Second)
}

// unreachable are the answers that no packets get through to the rank, or from it.
func (t *trial) unreachable() {
	for _, end := range []string{"rank", "peer_rank"} {
		t.truth.Right = append(t.truth.Right, judge.Answer{
			Pattern: "nccl_socket_stall", Culprit: map[string]string{end: strconv.Itoa(t.rank)}, Says: regexp.MustCompile("packets|answers|reach"),
		})
	}
}

func (t *trial) linkDown() (int, error) {
	t.unreachable()
	t.begin()
	if err := t.network.Plug(t.rank, false); err != nil {
		return running, err
	}
	time.Sleep(t.seconds(6, 9))
	if err := t.network.Plug(t.rank, true); err != nil {
		return running, err
	}
	return t.reaches()
}

func (t *trial) cutOff() (int, error) {
	t.unreachable()
	t.begin()
	for r := range t.world {
		if r == t.rank {
			continue
		}
		if err := errors.Join(t.network.Drop(t.rank, r), t.network.Drop(r, t.rank)); err != nil {
			return running, err
		}
	}
	time.Sleep(t.seconds(6, 9))
	if err := t.network.Heal(); err != nil {
		return running, err
	}
	return t.reaches()
}

func (t *trial) outOfMemory(order ...string) (int, error) {
	c, err := newCgroup("memory", t.cgroup())
	if err != nil {
		return running, err
	}
	pid := t.pid(t.rank)
	t.later(func() error {
		if err := t.end(); err != nil {
			return err
		}
		return c.close()
	})
	if err := c.limit(400 << 20); err != nil {
		return running, err
	}
	if err := c.add(pid); err != nil {
		return running, err
	}
	t.right("host_oom_kill", "memory")
	t.rightAgain("SIGKILL")
	if err := t.order(t.rank, order...); err != nil {
		return ended, err
	}
	if err := t.killedIn(c); err != nil {
		return ended, err
	}
	return ended, t.watch(20 * time.Second)
}

// killedIn waits for the kill that is the fault: until then a worker starts, and memory is
// written, for seconds.
func (t *trial) killedIn(c *cgroup) error {
	const within = 2 * time.Minute
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		t.begin() // before the look: the verdict is no earlier
		if c.kills() > 0 {
			return nil
		}
	}
	return fmt.Errorf("no process of %s was killed within %s", c.path, within)
}

func (t *trial) workerKilled() (int, error) {
	if err := t.order(t.rank, "loader", "60"); err != nil {
		return running, err
	}
	worker, err := t.worker(20 * time.Second)
	if err != nil {
		return ended, err
	}
	t.right("dataloader_hang", "SIGKILL|killed")
	t.right("rank_exit", "exit status 1")
	t.begin()
	if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
		return ended, err
	}
	return ended, t.watch(10 * time.Second)
}
