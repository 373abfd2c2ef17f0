package activity

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// thread says where a thread of process 42 sleeps, and how often it has gone to.
func (p tree) thread(tid uint32, state string, sleeps int, call string) {
	p.write(fmt.Sprintf("42/task/%d/status", tid), fmt.Sprintf("State:\t%s (x)\nNSpid:\t%d\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t0\n", state, tid, sleeps))
	p.write(fmt.Sprintf("42/task/%d/syscall", tid), call+"\n")
	p.write(fmt.Sprintf("42/task/%d/wchan", tid), "x")
}

// The main thread joins a thread that writes a checkpoint in one call: no byte counts until that
// returns, and no CPU is used.
func TestAThreadWhoseFileAnswersIsProgress(t *testing.T) {
	const fault = "-1 0x0 0x0"
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(0, 5, call("futex", 1), "futex_do_wait")
	tree.opens(42, map[int]string{7: "/mnt/ckpt/model.pt", 8: "/dev/nvidia0", 9: "pipe:[9] r"})
	l := newLooks(tree, p)
	for _, tc := range []struct {
		name     string
		sleeps   int
		state    string
		call     string
		answered bool
	}{
		{"first look", 3, "S", call("write", 7), false},
		{"a write that is answered", 5, "S", call("write", 7), true},
		{"a write that is not", 5, "S", call("write", 7), false},
		{"a driver's file", 7, "S", call("read", 8), false},
		{"a pipe", 9, "S", call("read", 9), false},
		{"a lock", 11, "S", call("futex", 1), false},
		{"a page that comes", 13, "D", fault, true},
		{"a page that does not come", 13, "D", fault, false},
	} {
		tree.thread(43, tc.state, tc.sleeps, tc.call)
		tree.thread(44, "S", 1, call("futex", 1))
		out := l.look()
		require.Equal(t, tc.answered, out.Inside.Answered, tc.name)
		how, _ := out.Does(out.Usage(), 1e9, 0)
		require.Equal(t, tc.answered, how == socketstall.IO, tc.name)
		if tc.answered && tc.call != fault {
			require.Equal(t, "/mnt/ckpt/model.pt", out.Inside.File, tc.name)
			require.Equal(t, "write", out.Inside.Syscall, tc.name)
		}
	}
	l.Begin() // a round in which nobody asked
	tree.thread(43, "D", 20, fault)
	require.False(t, l.look().Inside.Answered, "nothing to compare with")
	for range forgotten + 2 {
		l.Begin()
	}
	require.Empty(t, l.trees.uses)
}

// On a host that is short of CPUs a thread that has been woken waits for one. No look may meet it asleep, and so nobody knows
// what woke it: the page that it waited for, or its timer.
func TestAThreadThatIsAwakeAtEachLook(t *testing.T) {
	const fault = "-1 0x0 0x0"
	type step struct {
		sleeps         int
		state, call    string
		unsure, answer bool
	}
	awake := func(sleeps int, unsure bool) step { return step{sleeps, "R", "running", unsure, false} }
	for name, steps := range map[string][]step{
		"it touches pages":                    {awake(3, false), awake(9, true), awake(15, true), awake(22, true), awake(29, true), awake(35, true), {41, "D", fault, false, true}, {48, "R", "running", false, true}},
		"it sleeps since its status was read": {awake(3, false), {9, "R", fault, false, true}, {15, "R", fault, false, true}},
		"it is awake since":                   {awake(3, false), {9, "D", "running", false, true}, {15, "D", "running", false, true}},
		"it polls":                            {awake(3, false), awake(9, true), {15, "S", call("epoll_pwait", 5), false, false}, awake(22, false), awake(28, false)},
		"it spins":                            {awake(3, false), awake(3, false), awake(3, false)},
		"it has slept, and has work now": {
			{3, "S", call("futex", 1), false, false}, {3, "S", call("futex", 1), false, false}, awake(9, true), awake(15, true), {22, "D", fault, false, true},
		},
		"it polled, slept, and has work now": {
			{3, "S", call("futex", 1), false, false}, {9, "S", call("futex", 1), false, false}, awake(15, false), {15, "S", call("futex", 1), false, false},
			{15, "S", call("futex", 1), false, false}, awake(22, true),
		},
	} {
		for _, main := range []bool{false, true} {
			if main && steps[0].state == "R" {
				continue // one that was never seen asleep may wait for a file, as long as it is awake
			}
			t.Run(fmt.Sprintf("%s, main thread: %t", name, main), func(t *testing.T) {
				tree := newTree(t)
				p := tree.add("S", 250, 125)
				tree.main(0, 5, call("futex", 1), "futex_do_wait")
				l := newLooks(tree, p)
				for i, s := range steps {
					if main {
						tree.sleeps(42, s.sleeps, s.call, "x")
						tree.write("42/status", status(s.state, uint64(s.sleeps), 7))
					} else {
						tree.thread(43, s.state, s.sleeps, s.call)
					}
					in := l.look().Inside
					require.Equal(t, s.unsure, in.Unsure, "look %d", i)
					require.Equal(t, s.answer, in.Answered, "look %d", i)
				}
			})
		}
	}
}

// It is judged in the end: nobody is above all suspicion.
func TestAThreadThatNobodyEverSeesAsleep(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(0, 5, call("futex", 1), "futex_do_wait")
	l := newLooks(tree, p)
	unsure := 0
	for sleeps := range 2 * looksWithoutTurn {
		tree.thread(43, "R", 7*sleeps, "running")
		if l.look().Inside.Unsure {
			unsure++
		}
	}
	require.Equal(t, looksWithoutTurn, unsure)
}

// One of the workers reads a mapped file; the main thread waits in a lock for a thread that pins
// what workers read.
func TestAWorkerBehindAThreadWhoseFileAnswers(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.write("42/io", "rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n")
	loader(tree)
	tree.sleeps(42, 5, call("futex", 1), "futex_do_wait")
	tree.childIn("D", 51, 42, "pt_data_worker", 100, 0)
	tree.childIn("T", 52, 42, "bash", 100, 0)
	l := newLooks(tree, p)
	for sleeps := range 4 {
		tree.sleeps(51, sleeps, "-1 0x0 0x0", "folio_wait_bit_common")
		in := l.look().Inside
		require.Equal(t, sleeps > 0, in.Answered)
		require.True(t, in.Holder == nil || sleeps == 0, "that a shell is stopped says nothing")
	}
	in := l.look().Inside
	require.False(t, in.Answered)
	require.NotNil(t, in.Holder, "now nothing answers")
}

// A program that a rank sent into the background has process 1 for its parent, and computes.
func TestAProgramThatLeftItsRankIsOfItsTree(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(0, 5, call("clock_nanosleep", 0, 0), "hrtimer_nanosleep")
	tree.child(50, 42, "pt_data_worker", 100, 0)
	l := newLooks(tree, p)
	ranks := []identity.Process{p, {PID: 60, Inherited: true, RankPID: 42}, {PID: 61, Inherited: true, RankPID: 42}, {PID: 70, Inherited: true, RankPID: 7}, {PID: 80, RankPID: 80}}
	require.Equal(t, map[uint32][]uint32{42: {60, 61}, 7: {70}}, Kin(ranks))
	for look := range uint64(3) {
		for _, pid := range []uint32{60, 70, 80} {
			tree.child(pid, 1, "python3", 100+90*look, 0)
		}
		tree.child(90, 60, "its child", 0, 0)
		l.at = l.at.Add(time.Second)
		l.Begin()
		out := l.Read(p, false)
		l.Inspect(&out, func(pid uint32) bool { return pid == 80 }, Kin(ranks)[42]...)
		require.Equal(t, []uint32{50, 60, 90}, out.Inside.Tree, "61 has ended")
		if look > 0 {
			require.InDelta(t, 0.9, out.Inside.Children, 0.001)
			require.Equal(t, uint32(60), out.Inside.Busiest.PID)
		}
	}
}

// A thread that takes no signal and is not woken is told, where it sleeps and on what: the main thread
// of its rank is in a lock. One that is woken, or that sleeps as any thread does, is not.
func TestAThreadThatIsBlockedIsTold(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(0, 5, call("futex", 1), "futex_do_wait")
	tree.opens(42, map[int]string{7: "/ckpt/model.pt", 8: "pipe:[9] r"})
	l := newLooks(tree, p)
	for _, tc := range []struct {
		name   string
		state  string
		sleeps int
		call   string
		want   Thread
	}{
		{"first look", "D", 3, call("write", 7), Thread{}},
		{"it is not woken", "D", 3, call("write", 7), Thread{43, "write", "x", "/ckpt/model.pt"}},
		{"it is woken", "D", 4, call("write", 7), Thread{}},
		{"not again", "D", 4, call("write", 7), Thread{43, "write", "x", "/ckpt/model.pt"}},
		{"a page that does not come", "D", 4, "-1 0x0 0x0", Thread{43, "", "x", ""}},
		{"it waits for no file", "D", 4, call("clock_nanosleep", 0), Thread{43, "clock_nanosleep", "x", ""}},
		{"it sleeps", "S", 4, call("read", 8), Thread{}},
		{"in a lock", "S", 4, call("futex", 1), Thread{}},
		{"it runs", "D", 4, "running", Thread{}},
	} {
		tree.thread(43, tc.state, tc.sleeps, tc.call)
		tree.thread(44, "S", 1, call("futex", 1))
		require.Equal(t, tc.want, l.look().Inside.Blocked, tc.name)
	}
	tree.thread(43, "S", 4, call("futex", 1))
	tree.thread(42, "D", 5, call("write", 7))
	require.Zero(t, l.look().Inside.Blocked, "the main thread is told as such")
}
