//go:build linux && (amd64 || arm64)

package identity

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// senderBench is a tracker and a rank that is about to end.
type senderBench struct {
	*Tracker
	testing.TB
	exits <-chan Exit
	id    string        // of the job, "" for one that all share
	first time.Time     // that somebody was asked to end
	took  time.Duration // from then until the last was
}

func (b *senderBench) start(as *syscall.SysProcAttr, mode string) *child {
	b.Helper()
	return startChildAs(b, as, mode, "RANK=3", "WORLD_SIZE=8", "JOB_ID="+cmp.Or(b.id, "senders"))
}

// told starts a process in a mode that prints when it is ready.
func (b *senderBench) told(mode string) *child {
	b.Helper()
	c := b.start(nil, mode)
	c.printed(b)
	return c
}

// kill lets another process than this one, of that name, send a signal.
func (b *senderBench) kill(as *syscall.SysProcAttr, name string, pid uint32, signal unix.Signal, environ ...string) (killer uint32) {
	b.Helper()
	defer b.asks(time.Now())
	k := startChildAs(b, as, "killer", append(environ, "KILLER_NAME="+name)...)
	_, err := fmt.Fprintln(k.stdin, pid, int(signal))
	require.NoError(b, err)
	require.Zero(b, k.printed(b), "kill(2)")
	k.finish()
	return k.pid()
}

// ended waits for the end of a process, and for the tracker to tell it.
func (b *senderBench) ended(c *child) Exit {
	b.Helper()
	_ = c.Wait()
	return exitOf(b, b.exits, c.pid())
}

// reaped waits until a process has ended, and returns its pid.
func (b *senderBench) reaped(c *child) uint32 {
	b.Helper()
	_ = c.Wait()
	return c.pid()
}

func asUser(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

func ownPIDNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
}

func TestExitsTellWhoSentTheSignal(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: tracker, TB: t, exits: watch(t, tracker)}
	self := uint32(os.Getpid())
	causes := map[string]struct {
		do     func(b *senderBench) (pid, sender uint32)
		signal unix.Signal
		want   Relation
		comm   string
		code   int
	}{
		"a process that is nobody's": {want: RelationOther, signal: unix.SIGKILL, comm: "stranger", do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "wait")
			by := b.kill(nil, "stranger", c.pid(), unix.SIGKILL)
			return b.reaped(c), by
		}},
		"a process that calls itself slurmstepd": {want: RelationOther, signal: unix.SIGKILL, comm: "slurmstepd", do: func(b *senderBench) (uint32, uint32) {
			c := b.start(asUser(1000), "wait")
			by := b.kill(asUser(1000), "slurmstepd", c.pid(), unix.SIGKILL)
			return b.reaped(c), by
		}},
		"another rank of the job": {want: RelationRank, signal: unix.SIGTERM, comm: "rank", do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "wait")
			by := b.kill(nil, "rank", c.pid(), unix.SIGTERM, "RANK=4", "WORLD_SIZE=8", "JOB_ID="+b.id)
			return b.reaped(c), by
		}},
		"what started it": {want: RelationLauncher, signal: unix.SIGKILL, do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "wait")
			require.NoError(b, c.Process.Kill())
			return b.reaped(c), self
		}},
		"root that started it as a user": {want: scheduling(b), signal: unix.SIGTERM, do: func(b *senderBench) (uint32, uint32) {
			c := b.start(asUser(1000), "wait")
			require.NoError(b, unix.Kill(int(c.pid()), unix.SIGTERM))
			return b.reaped(c), self
		}},
		"itself": {want: RelationItself, signal: unix.SIGABRT, comm: "exe", do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "abort")
			c.finish()
			return b.reaped(c), c.pid()
		}},
		"the kernel, for a fault": {want: RelationKernel, signal: unix.SIGSEGV, do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "segv")
			c.finish()
			return b.reaped(c), 0
		}},
		// A file's owner is told of what happens to it by a signal of his choice, in the name of
		// the process that did it (F_SETSIG): that one has sent nothing.
		"nobody, by what another writes into a file": {want: RelationKernel, signal: unix.SIGTERM, do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "wait")
			var pipe [2]int
			require.NoError(b, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
			defer func() { require.NoError(b, errors.Join(unix.Close(pipe[0]), unix.Close(pipe[1]))) }()
			for _, set := range [][2]int{{unix.F_SETOWN, int(c.pid())}, {unix.F_SETSIG, int(unix.SIGTERM)}, {unix.F_SETFL, unix.O_ASYNC}} {
				_, err := unix.FcntlInt(uintptr(pipe[0]), set[0], set[1])
				require.NoError(b, err)
			}
			_, err := unix.Write(pipe[1], []byte("x"))
			require.NoError(b, err)
			return b.reaped(c), 0
		}},
		// A process that may send a signal may say that a timer did: then nobody is named.
		"a process that calls itself a timer": {want: RelationKernel, signal: unix.SIGKILL, do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "wait")
			info := [32]int32{int32(unix.SIGKILL), 0, -2} // include/uapi/asm-generic/siginfo.h: SI_TIMER
			_, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(c.pid()), uintptr(unix.SIGKILL), uintptr(unsafe.Pointer(&info)))
			require.Zero(b, errno)
			return b.reaped(c), 0
		}},
		"itself, when it was asked to end before": {want: RelationOther, signal: unix.SIGTERM, comm: "asks", do: func(b *senderBench) (uint32, uint32) {
			c := b.told("raiseAfterTerm")
			by := b.kill(nil, "asks", c.pid(), unix.SIGTERM)
			return b.reaped(c), by
		}},
		"who had asked it to end": {want: RelationOther, signal: unix.SIGTERM, comm: "asks", code: 7, do: func(b *senderBench) (uint32, uint32) {
			c := b.told("exitAfterTerm")
			by := b.kill(nil, "asks", c.pid(), unix.SIGTERM)
			return b.reaped(c), by
		}},
		"the first of two": {want: RelationOther, signal: unix.SIGKILL, comm: "first", do: func(b *senderBench) (uint32, uint32) {
			c := b.start(nil, "wait")
			by := b.kill(nil, "first", c.pid(), unix.SIGKILL)
			b.kill(nil, "second", c.pid(), unix.SIGKILL) // it is dead, and nobody has waited for it
			return b.reaped(c), by
		}},
		"root outside of its container": {want: RelationContainer, signal: unix.SIGKILL, comm: "runtime", do: func(b *senderBench) (uint32, uint32) {
			c := b.start(ownPIDNamespace(), "wait")
			by := b.kill(nil, "runtime", c.pid(), unix.SIGKILL)
			return b.reaped(c), by
		}},
		"a user outside of its container": {want: RelationOther, signal: unix.SIGKILL, comm: "user", do: func(b *senderBench) (uint32, uint32) {
			as := asUser(1000)
			as.Cloneflags = unix.CLONE_NEWPID
			c := b.start(as, "wait")
			by := b.kill(asUser(1000), "user", c.pid(), unix.SIGKILL)
			return b.reaped(c), by
		}},
	}
	type done struct {
		before      time.Time
		pid, sender uint32
	}
	cases, pids := map[string]done{}, []uint32{}
	for name, tc := range causes {
		one := done{before: time.Now()}
		b.id = strings.ReplaceAll(name, " ", "-") // programs of one rank of one job may be a script's
		one.pid, one.sender = tc.do(b)
		cases[name], pids = one, append(pids, one.pid)
	}
	told := exitsOf(t, b.exits, pids...)
	for name, tc := range causes {
		t.Run(name, func(t *testing.T) {
			one, e := cases[name], told[cases[name].pid]
			require.Equal(t, int(tc.signal), e.Signalled.Number)
			got := e.Signalled.Sender
			require.Equal(t, []any{tc.want, one.sender}, []any{got.Relation, got.PID})
			require.WithinRange(t, e.Signalled.Time, one.before.Add(-time.Second), e.Time.Add(time.Second))
			require.Equal(t, tc.code, e.Code)
			if tc.comm != "" {
				require.Equal(t, tc.comm, got.Comm)
			}
			if one.sender == 0 {
				return
			}
			p, known := tracker.Lookup(one.sender, 0, e.Signalled.Time)
			require.True(t, known)
			require.Equal(t, p.StartNS, got.StartNS)
		})
	}
	require.Zero(t, tracker.Stats().Dropped)
}

// scheduling is what this process is to a rank that it starts under another user: in a
// container nobody is root of the machine.
func scheduling(b *senderBench) Relation {
	self, known := b.Lookup(uint32(os.Getpid()), 0, time.Now())
	namespace, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(b, err)
	require.True(b, known)
	const initial = "pid:[4026531836]" // PROC_PID_INIT_INO, include/linux/proc_ns.h
	if self.ContainerID == "" && namespace == initial {
		return RelationScheduler
	}
	return RelationLauncher
}

// A container ends with its first process: the kernel kills the rest of its namespace. Whether
// that was wanted shows in the end of the first one.
func TestEndOfTheFirstProcessEndsItsContainer(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: tracker, TB: t, exits: watch(t, tracker)}
	for name, tc := range map[string]struct {
		code string
		end  func(first *child)
		want Relation
	}{
		"it returns":                {code: "0", end: (*child).finish, want: RelationContainer},
		"it fails":                  {code: "3", end: (*child).finish, want: RelationFirst},
		"it is killed from outside": {end: func(first *child) { b.kill(nil, "runtime", first.pid(), unix.SIGKILL) }, want: RelationContainer},
	} {
		t.Run(name, func(t *testing.T) {
			first := startChildAs(t, ownPIDNamespace(), "init", "INIT_CODE="+tc.code)
			require.Positive(t, int32(first.printed(t)), "the rank, in its namespace")
			tc.end(first)
			require.Equal(t, []any{9, 9, tc.want, first.pid()}, childRank(t, b.exits, first.pid()))
		})
	}
}

// childRank is how the rank ended that this process had started, and by whom. What a rank of an
// earlier test forked may end late, and has its number.
func childRank(t *testing.T, exits <-chan Exit, parent uint32) []any {
	t.Helper()
	timeout := time.After(hosttest.Patience)
	for {
		select {
		case e := <-exits:
			if e.Rank == 3 && e.ParentPID == parent {
				return []any{e.Signal, e.Signalled.Number, e.Signalled.Sender.Relation, e.Signalled.Sender.PID}
			}
		case <-timeout:
			require.FailNow(t, "no exit of the rank")
		}
	}
}

func TestStoppedTellsWhoStoppedAProcess(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: tracker, TB: t, exits: watch(t, tracker)}
	c := b.start(nil, "wait")
	rank, known := tracker.Lookup(c.pid(), 0, time.Now())
	require.True(t, known)
	_, stopped := tracker.Stopped(rank)
	require.False(t, stopped, "nobody has")

	by := b.kill(nil, "stopper", c.pid(), unix.SIGSTOP)
	signal, stopped := tracker.Stopped(rank)
	require.True(t, stopped)
	require.Equal(t, []any{int(unix.SIGSTOP), RelationOther, by, "stopper"},
		[]any{signal.Number, signal.Sender.Relation, signal.Sender.PID, signal.Sender.Comm})

	other := rank
	other.StartNS += uint64(time.Second)
	_, stopped = tracker.Stopped(other)
	require.False(t, stopped, "another process that had the pid")

	b.kill(nil, "helper", c.pid(), unix.SIGCONT)
	_, stopped = tracker.Stopped(rank)
	require.False(t, stopped, "it was continued")
	require.NoError(t, tracker.Close())
	_, stopped = tracker.Stopped(rank)
	require.False(t, stopped, "nobody watches any more")
}

// Who stopped a rank, and who asked it to end, is known to the next Tracker, which is told. Neither stands for what came later.
func TestTheNextTrackerIsToldWhatARankWasSent(t *testing.T) {
	privtest.Require(t)
	first := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: first, TB: t, exits: watch(t, first)}
	c := b.start(nil, "wait")
	rank, known := first.Lookup(c.pid(), 0, time.Now())
	require.True(t, known)
	_, is := first.Sent(rank)
	require.False(t, is)
	held := func() bool {
		status, err := first.proc.Status(c.pid())
		return err == nil && status.State == 'T'
	}
	by := b.kill(nil, "stopper", c.pid(), unix.SIGSTOP)
	require.Eventually(t, held, hosttest.Patience, time.Millisecond)
	asked := b.kill(nil, "asker", c.pid(), unix.SIGTERM) // it does not act on it while it is stopped
	sent, is := first.Sent(rank)
	require.True(t, is)
	require.Equal(t, []any{int(unix.SIGSTOP), by, "stopper", int(unix.SIGTERM), asked, "asker"},
		[]any{sent.Stopped.Number, sent.Stopped.Sender.PID, sent.Stopped.Sender.Comm, sent.Asked.Number, sent.Asked.Sender.PID, sent.Asked.Sender.Comm})
	text, err := json.Marshal(sent)
	require.NoError(t, err)
	var kept Sent
	require.NoError(t, json.Unmarshal(text, &kept))
	require.NoError(t, first.Close())

	second := openTracker(t, Options{Rung: RungSignals})
	exits := watch(t, second)
	_, is = second.Stopped(rank)
	require.False(t, is, "its kernel side has not seen it")
	second.WasSent(rank, kept)
	signal, is := second.Stopped(rank)
	require.True(t, is)
	require.Equal(t, []any{int(unix.SIGSTOP), by, RelationOther}, []any{signal.Number, signal.Sender.PID, signal.Sender.Relation})
	again, is := second.Sent(rank)
	require.True(t, is, "it is kept for the third, too")
	require.Equal(t, []any{by, asked, sent.Switches}, []any{again.Stopped.Sender.PID, again.Asked.Sender.PID, again.Switches})

	b.Tracker = second
	later := b.kill(nil, "later", c.pid(), unix.SIGSTOP)
	signal, is = second.Stopped(rank)
	require.True(t, is)
	require.Equal(t, later, signal.Sender.PID, "the newer one")
	require.NoError(t, unix.Kill(int(c.pid()), unix.SIGCONT))
	e := exitOf(t, exits, c.pid())
	require.Equal(t, []any{int(unix.SIGTERM), asked, "asker"}, []any{e.Signal, e.Signalled.Sender.PID, e.Signalled.Sender.Comm}, "the signal that had waited")
}

// What holds a process that was continued, and stopped again while nobody watched, is not known.
func TestWhatStoppedARankBeforeIsNotWhatHoldsItNow(t *testing.T) {
	privtest.Require(t)
	first := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: first, TB: t, exits: watch(t, first)}
	c := b.start(nil, "wait")
	rank, known := first.Lookup(c.pid(), 0, time.Now())
	require.True(t, known)
	in := func(state byte) func() bool {
		return func() bool {
			status, err := first.proc.Status(c.pid())
			return err == nil && status.State == state
		}
	}
	b.kill(nil, "stopper", c.pid(), unix.SIGSTOP)
	require.Eventually(t, in('T'), hosttest.Patience, time.Millisecond)
	sent, is := first.Sent(rank)
	require.True(t, is)
	require.NoError(t, first.Close())
	require.NoError(t, unix.Kill(int(c.pid()), unix.SIGCONT))
	require.Eventually(t, in('S'), hosttest.Patience, time.Millisecond)
	require.NoError(t, unix.Kill(int(c.pid()), unix.SIGSTOP))
	require.Eventually(t, in('T'), hosttest.Patience, time.Millisecond)

	second := openTracker(t, Options{Rung: RungSignals})
	second.WasSent(rank, sent)
	_, is = second.Stopped(rank)
	require.False(t, is)
	_, is = second.Sent(rank)
	require.False(t, is)
	other := rank
	other.StartNS += uint64(time.Second)
	second.WasSent(other, sent) // another process that had the pid
	_, is = second.Stopped(other)
	require.False(t, is)
	require.NoError(t, unix.Kill(int(c.pid()), unix.SIGKILL))
}

// A launcher that starts a rank again while the one before has not ended yet, as it was asked to,
// has another process of the rank.
func TestARankIsStartedAgainBeforeItHasEnded(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: tracker, TB: t, exits: watch(t, tracker)}
	for asked, job := range map[bool]string{true: "again-after-term", false: "again-unasked"} {
		old := b.rankOf(job, 1, "exitAfterTerm")
		old.printed(t)
		require.NoError(t, unix.Kill(int(old.pid()), unix.SIGSTOP))
		if asked {
			require.NoError(t, unix.Kill(int(old.pid()), unix.SIGTERM)) // it does not act on it while it is stopped
		}
		again := b.rankOf(job, 1, "exitAfterTerm")
		again.printed(t)
		var p Process
		require.Eventually(t, func() bool {
			p, _ = tracker.Lookup(again.pid(), 0, time.Now())
			return p.Rank == 1
		}, hosttest.Patience, time.Millisecond)
		require.Equal(t, asked, p.RankPID == again.pid())
		require.NoError(t, unix.Kill(int(old.pid()), unix.SIGKILL))
		require.Equal(t, old.pid(), b.ended(old).RankPID)
	}
}

// However many signals a stranger sends, ends of others are not lost, nor who sent theirs.
func TestFloodOfSignalsCostsNobodyElse(t *testing.T) {
	privtest.Require(t)
	tracker := openTracker(t, Options{Rung: RungSignals})
	b := &senderBench{Tracker: tracker, TB: t, exits: watch(t, tracker)}
	c := b.start(nil, "wait")
	flooded := startChild(t, "exitAfterTerm") // handles SIGTERM
	flooded.printed(t)
	require.NoError(t, unix.Kill(int(flooded.pid()), unix.SIGSTOP))
	events := tracker.Stats().Events
	for range 100_000 {
		require.NoError(t, unix.Kill(int(flooded.pid()), unix.SIGTERM))
	}
	by := b.kill(nil, "x", c.pid(), unix.SIGKILL)
	e := b.ended(c)
	require.Equal(t, by, e.Signalled.Sender.PID)
	require.Zero(t, tracker.Stats().Dropped)
	require.Less(t, tracker.Stats().Events-events, uint64(50_000), "signals do not leave the kernel by themselves")
}

// Of the ancestors of a rank one has started it.
func TestWhatStartedARankIsToldFromItsOtherAncestors(t *testing.T) {
	for sender, want := range map[uint32]Relation{
		7: RelationLauncher, // torchrun
		6: RelationAncestor, // its shell
		5: RelationAncestor,
		1: RelationAncestor,
		8: RelationRank, // the wrapper of the rank, which has its environment
		9: RelationOther,
	} {
		for pid, parent := range map[uint32]uint32{20: 8, 21: 20, 8: 7} { // the rank, a worker of it, and its wrapper
			if pid == sender {
				continue
			}
			tracker := &Tracker{proc: newReader(t.TempDir()), table: newTable(100, DefaultRetention), host: "n1"}
			var got Sender
			tracker.launches = newLaunches(func(e Exit) { got = e.Signalled.Sender }, nobody)
			begin := func(pid, parent uint32, comm string, environ ...string) signalledLine {
				return signalledLine{line: line{0, "exec", pid, parent, 0, comm, environ}}
			}
			by := &signals{asked: asked{sent: sent{signal: 9, pid: sender, startNS: scriptNS(0), userID: 1000, timeNS: scriptNS(20)}}}
			playInto(tracker, []signalledLine{
				begin(5, 1, "sshd"), begin(6, 5, "bash"), begin(7, 6, "torchrun"), begin(9, 5, "bash"), begin(8, 7, "sh", rank3()...), begin(20, 8, "python", rank3()...),
				begin(21, 20, "worker", rank3()...), {line: line{20, "exit", pid, parent, 9, "x", nil}, signals: by},
			})
			require.Equal(t, []any{want, sender}, []any{got.Relation, got.PID}, "of process %d to %d", sender, pid)
		}
	}
}
