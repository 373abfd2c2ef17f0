package activity

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// child puts a process below another into the tree.
func (p tree) child(pid, parent uint32, name string, ticks, bytes uint64) {
	p.childIn("S", pid, parent, name, ticks, bytes)
}

// childIn is a child in that state.
func (p tree) childIn(state string, pid, parent uint32, name string, ticks, bytes uint64) {
	p.write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (%s) %s %d 42 42 0 -1 4194304 1 0 0 0 %d 0 0 0 20 0 2 0 70000 1000 1", pid, name, state, parent, ticks))
	p.write(fmt.Sprintf("%d/schedstat", pid), "1 0 1\n")
	p.write(fmt.Sprintf("%d/io", pid), fmt.Sprintf("rchar: %d\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n", bytes))
}

// main says what the main thread of process 42 does.
func (p tree) main(bytes, sleeps uint64, syscall, channel string) {
	p.write("42/io", fmt.Sprintf("rchar: %d\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n", bytes))
	state := "S"
	if syscall == "running" {
		state = "R"
	}
	p.write("42/status", status(state, sleeps, 7))
	p.write("42/syscall", syscall+"\n")
	p.write("42/wchan", channel)
}

// looks looks into process 42 again and again, a second apart.
type looks struct {
	*Reader
	process identity.Process
	at      time.Time
	nccl    bool
}

func newLooks(tree tree, p identity.Process) *looks {
	l := &looks{Reader: New(procfs.Open(tree.root).WithPatience(hosttest.Patience)), process: p, at: time.Now()}
	l.clock = func() time.Time { return l.at }
	l.daemons.demand.clock = l.clock
	l.daemons.isFUSE = func(file string) bool { // there may be no such device here
		link, err := os.Readlink(file)
		return err == nil && link == fuseDevice && filepath.Base(file) != fake
	}
	return l
}

func (l *looks) look(others ...uint32) Process {
	l.at = l.at.Add(time.Second)
	l.Begin()
	out := l.Read(l.process, false)
	out.NCCL = l.nccl
	l.Inspect(&out, func(pid uint32) bool { return slices.Contains(others, pid) })
	return out
}

func TestProgressOfAProcessTree(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "202 0x1 0x2", "futex_do_wait")
	tree.child(50, 42, "pt_data_worker", 100, 0)
	tree.child(51, 50, "ffmpeg", 100, 0)
	tree.child(60, 1, "sshd", 100, 0)
	tree.child(70, 42, "rank 1", 100, 0)
	l := newLooks(tree, p)
	first := l.look(70)
	require.False(t, first.Inside.Compared)
	require.Equal(t, []uint32{50, 51}, first.Inside.Tree, "not a stranger, not another rank")
	require.Equal(t, "futex", first.Inside.Syscall)
	require.Equal(t, "futex_do_wait", first.Inside.Channel)

	tree.child(50, 42, "pt_data_worker", 180, 4000)
	tree.child(51, 50, "ffmpeg", 120, 0)
	tree.child(70, 42, "rank 1", 200, 0)
	tree.main(3000, 5, "202 0x1 0x2", "futex_do_wait")
	in := l.look(70).Inside
	require.True(t, in.Compared)
	require.InDelta(t, 1.0, in.Children, 0.001)
	require.Equal(t, uint32(50), in.Busiest.PID)
	require.Equal(t, "pt_data_worker", in.Busiest.Comm)
	require.InDelta(t, 6000, in.IO, 0.001)
	require.False(t, in.Answered)
}

// A worker ends, and a neighbour's process gets its number: it is no child, nor is what is below
// it.
func TestANumberUsedAgainIsNoChild(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "202 0x1 0x2", "futex_do_wait")
	tree.child(50, 42, "pt_data_worker", 100, 0)
	tree.child(51, 50, "ffmpeg", 100, 0)
	l := newLooks(tree, p)
	require.Equal(t, []uint32{50, 51}, l.look().Inside.Tree)
	for ticks := range uint64(3) {
		tree.childIn("T", 50, 7, "neighbour", 200+100*ticks, 4000)
		tree.child(51, 50, "below it", 200+100*ticks, 4000)
		in := l.look().Inside
		require.Empty(t, in.Tree)
		require.Zero(t, in.Children)
		require.Nil(t, in.Holder)
	}
}

// A child that computes in another thread than its first has no CPU for most of the time.
func TestAChildThatIsStarved(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "61 0x1 0x2", "do_wait")
	l := newLooks(tree, p)
	var in *Inside
	for look := range uint64(4) {
		tree.child(50, 42, "tokenizer", 100+look, 0) // a hundredth of a core
		tree.write("50/task/50/schedstat", "1 0 1\n")
		tree.write("50/task/51/schedstat", fmt.Sprintf("1 %d 1\n", 1e9+900e6*look))
		tree.write("50/task/51/status", status("R", 7, look))
		in = l.look().Inside
	}
	require.InDelta(t, 0.91, in.Children, 0.001)
	require.InDelta(t, 0.91, in.Busiest.Share, 0.001)

	tree.child(50, 42, "tokenizer", 103, 0) // it rests
	tree.write("50/task/51/status", status("S", 7, 3))
	require.Zero(t, l.look().Inside.Children)
}

func TestWhatAMainThreadWaitsFor(t *testing.T) {
	write := map[string]string{"amd64": "1", "arm64": "64"}[runtime.GOARCH]
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	require.NoError(t, os.MkdirAll(filepath.Join(tree.root, "42/fd"), 0o755))
	require.NoError(t, os.Symlink("/mnt/ckpt/model.pt", filepath.Join(tree.root, "42/fd/7")))
	require.NoError(t, os.Symlink("pipe:[99]", filepath.Join(tree.root, "42/fd/8")))
	l := newLooks(tree, p)
	for _, tc := range []struct {
		name           string
		sleeps         uint64
		syscall, state string
		file           string
		answered       bool
	}{
		{"first look", 5, "0x7", "S", "/mnt/ckpt/model.pt", false},
		{"a write that is answered", 9, "0x7", "S", "/mnt/ckpt/model.pt", true},
		{"a write that is not", 9, "0x7", "S", "/mnt/ckpt/model.pt", false},
		{"a pipe that wakes it", 12, "0x8", "S", "pipe:[99]", false},
		{"a file that was closed", 15, "0x9", "S", "", false},
		{"a page fault that is answered", 18, "", "D", "", true},
		{"a page fault that is not", 18, "", "D", "", false},
	} {
		call := "-1 0x1 0x2"
		if tc.syscall != "" {
			call = write + " " + tc.syscall + " 0x1"
		}
		tree.write("42/stat", statLineOf("py) R (x", tc.state, 250, 50, 60000))
		tree.main(0, tc.sleeps, call, "x")
		in := l.look().Inside
		require.Equal(t, tc.file, in.File, tc.name)
		require.Equal(t, tc.answered, in.Answered, tc.name)
	}
}

// A main thread that sleeps until a time comes waits for no other rank, unless it only polls, or the sleep has just begun.
func TestAMainThreadThatSleepsUntilATimePauses(t *testing.T) {
	for name, tc := range map[string]struct {
		calls  []string // one a look
		wakes  uint64   // between two looks
		pauses bool
	}{
		"one sleep":                         {[]string{call("clock_nanosleep", 0, 0, 0), call("clock_nanosleep", 0, 0, 0)}, 0, true},
		"a sleep of Python 3.10":            {[]string{call("pselect6", 0, 0, 0), call("pselect6", 0, 0, 0)}, 0, true},
		"a poll of nothing":                 {[]string{call("ppoll", 0, 0, 0x7), call("ppoll", 0, 0, 0x7)}, 0, true},
		"the first look":                    {[]string{call("clock_nanosleep", 0, 0, 0)}, 0, false},
		"short sleeps, as who polls":        {[]string{call("clock_nanosleep", 0, 0, 0), call("clock_nanosleep", 0, 0, 0)}, 3, false},
		"it has just begun":                 {[]string{call("futex", 0x7, 0, 0), call("clock_nanosleep", 0, 0, 0)}, 1, false},
		"a wait for the data of a socket":   {[]string{call("pselect6", 9, 0x7, 0), call("pselect6", 9, 0x7, 0)}, 0, false},
		"a wait for one of several sockets": {[]string{call("ppoll", 0x7, 2, 0), call("ppoll", 0x7, 2, 0)}, 0, false},
		"a lock":                            {[]string{call("futex", 0x7, 0, 0), call("futex", 0x7, 0, 0)}, 0, false},
		"it runs":                           {[]string{call("clock_nanosleep", 0, 0, 0), "running"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			l := newLooks(tree, tree.add("S", 250, 125))
			var in *Inside
			for i, call := range tc.calls {
				tree.main(0, 5+uint64(i)*tc.wakes, call, "0")
				in = l.look().Inside
			}
			require.Equal(t, tc.pauses, in.Pauses)
		})
	}
}

// TestAThreadThatIsAwakeInALookWaitsWhereItSleptBefore: beside much other work, a thread that
// has just been answered waits for a CPU as long as it waited for the answer.
func TestAThreadThatIsAwakeInALookWaitsWhereItSleptBefore(t *testing.T) {
	write, futex := map[string]string{"amd64": "1", "arm64": "64"}[runtime.GOARCH], map[string]string{"amd64": "202", "arm64": "98"}[runtime.GOARCH]
	const awake = "running"
	for name, tc := range map[string]struct {
		calls    []string // one a look
		woken    bool
		file     string
		answered bool
	}{
		"it writes, and is answered":           {[]string{write + " 0x7 0x1", awake, awake}, true, "/mnt/ckpt/model.pt", true},
		"it wrote, and has had no turn since":  {[]string{write + " 0x7 0x1", awake, awake}, false, "/mnt/ckpt/model.pt", true},
		"it wrote, and nobody answers":         {[]string{write + " 0x7 0x1", write + " 0x7 0x1"}, false, "/mnt/ckpt/model.pt", false},
		"it was never seen asleep":             {[]string{awake, awake}, true, "", true},
		"it was never seen asleep nor woken":   {[]string{awake, awake}, false, "", false},
		"it polls in a lock":                   {[]string{futex + " 0x7 0x1", awake, awake}, true, "", false},
		"it wrote, and sleeps in a lock":       {[]string{write + " 0x7 0x1", futex + " 0x7 0x1", awake}, true, "", false},
		"it was in a lock, and writes by now":  {[]string{futex + " 0x7 0x1", awake, write + " 0x7 0x1"}, true, "/mnt/ckpt/model.pt", true},
		"it sleeps where nobody may look":      {[]string{"read me 0x1", "read me 0x1"}, true, "", false},
		"it is awake after nobody could look ": {[]string{"read me 0x1", awake}, true, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			p := tree.add("S", 250, 125)
			require.NoError(t, os.MkdirAll(filepath.Join(tree.root, "42/fd"), 0o755))
			require.NoError(t, os.Symlink("/mnt/ckpt/model.pt", filepath.Join(tree.root, "42/fd/7")))
			l := newLooks(tree, p)
			var in *Inside
			sleeps := uint64(5)
			for _, call := range tc.calls {
				tree.main(0, sleeps, call, "0")
				in = l.look().Inside
				if tc.woken {
					sleeps += 7
				}
			}
			require.Equal(t, tc.file, in.File)
			require.Equal(t, tc.answered, in.Answered)
		})
	}
}

func TestALookAfterAPauseComparesWithNothing(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "running", "0")
	l.look()
	require.True(t, l.look().Inside.Compared)
	l.Begin() // a round in which nobody asked
	require.False(t, l.look().Inside.Compared)
	require.True(t, l.look().Inside.Compared)
}

func TestChildrenThatHaveEndedCount(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "running", "0")
	l.look()
	line := fmt.Sprintf("42 (x) S 1 42 42 0 -1 4194304 1 0 0 0 250 50 70 20 20 0 9 0 %d 1000 1", 60000)
	tree.write("42/stat", line)
	require.InDelta(t, 0.9, l.look().Inside.Children, 0.001)
}

// status is that of a thread which has gone to sleep, and has given its CPU to another, so often.
func status(state string, sleeps, preempted uint64) string {
	return fmt.Sprintf("State:\t%s (x)\nUid:\t1000\t1000\t1000\t1000\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t%d\n", state, sleeps, preempted)
}

func TestThreadsThatHaveNoCPU(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
	turn := func(delayed, preempted uint64) *Inside {
		tree.write("42/task/43/schedstat", fmt.Sprintf("1 %d 1", delayed))
		tree.write("42/task/43/status", status("S", 7, preempted))
		return l.look().Inside
	}
	turn(1_000_000_000, 1)
	require.InDelta(t, 0.9, turn(1_900_000_000, 2).Starved, 0.001)
	require.InDelta(t, 1, turn(5_900_000_000, 3).Starved, 0.001, "it waited longer than since the look before")
	require.Zero(t, turn(5_900_000_000, 3).Starved, "it rests")
}

// The kernel counts a wait for a CPU when it is over. A thread that is ready to run at two looks, and has
// not given its CPU away in between, had no turn.
func TestAThreadThatHasNoTurn(t *testing.T) {
	const main, another, child, childsThread = 42, 43, 50, 51
	for name, tc := range map[string]struct {
		who    uint32
		before string // what its status was when it had its last turn
		nccl   bool
		want   socketstall.Activity
	}{
		"the main thread":                           {main, status("R", 7, 1), false, socketstall.Starved},
		"a main thread that slept until then":       {main, status("S", 7, 2), false, socketstall.Starved},
		"a main thread that polls":                  {main, status("R", 1, 2), false, socketstall.Idle},
		"another thread":                            {another, status("R", 7, 1), false, socketstall.Starved},
		"a thread that slept until then":            {another, status("S", 7, 2), false, socketstall.Starved},
		"a thread that polls":                       {another, status("R", 1, 2), false, socketstall.Idle},
		"a thread of NCCL that polls in the kernel": {another, status("R", 7, 1), true, socketstall.Idle},
		"a child":                        {child, status("R", 7, 1), false, socketstall.ChildComputing},
		"a child that polls":             {child, status("R", 1, 2), false, socketstall.Idle},
		"a thread of a child":            {childsThread, status("R", 7, 1), false, socketstall.ChildComputing},
		"a thread of a child that polls": {childsThread, status("R", 1, 2), false, socketstall.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			l := newLooks(tree, tree.add("S", 250, 125))
			l.nccl = tc.nccl
			tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
			tree.child(50, 42, "tokenizer", 100, 0)
			process := map[uint32]uint32{another: main, childsThread: child}[tc.who]
			folder := fmt.Sprintf("%d", tc.who)
			if process != 0 {
				folder = fmt.Sprintf("%d/task/%d", process, tc.who)
			}
			turn := func(text string, tick uint64) (out Process) {
				tree.write(folder+"/status", text)
				tree.write(folder+"/schedstat", fmt.Sprintf("%d 1 %d\n", 1000+tick*1000, tick))
				tree.write(folder+"/stat", fmt.Sprintf("%d (x) R 1 42 42 0 -1 4194304 1 0 0 0 100 %d 0 0 20 0 2 0 %d 1000 1", tc.who, 100+tick, begun))
				if process == 0 {
					tree.add("S", 250, 125)
					tree.child(50, 42, "tokenizer", 100, 0)
					tree.write(folder+"/schedstat", fmt.Sprintf("%d 1 %d\n", 1000+tick*1000, tick))
				}
				return l.look()
			}
			turn(tc.before, 0)
			before := turn(status("R", 7, 2), 1)
			for look := range 5 {
				out := turn(status("R", 7, 2), 1)
				how, share := out.Does(before.Usage(), time.Second, 0)
				require.Equal(t, tc.want, how, "look %d", look)
				require.True(t, how == socketstall.Idle || share > 0.9)
				require.True(t, how == socketstall.Idle || out.Inside.Holder == nil, "who cannot run holds nobody up")
				before = out
			}
		})
	}
}

// A thread of a child may get no turn before anybody sees that it works.
func TestAThreadOfAChildThatHadNoTurnYet(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "61 0x1 0x2", "do_wait")
	l := newLooks(tree, p)
	l.look()
	tree.child(50, 42, "tokenizer", 0, 0)
	tree.write("50/task/51/status", status("S", 7, 7))
	for range 4 { // it is there, and rests
		l.look()
	}
	tree.write("50/task/51/status", status("R", 7, 7))
	for range 3 {
		l.look()
	}
	require.InDelta(t, 1, l.look().Inside.Children, 0.001)
}

// A rank starts one program after the other. None lives from look to look, and beside other work each
// waits for a CPU nearly all its life.
func TestProgramsThatLiveForAMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu, ran, delayed uint64 // ticks of those that ended, ns of the one that is seen
		reaped            uint64
		wants             float64
	}{
		"seen at their end":                   {3, 30e6, 570e6, 3, 0.03 + 0.57 + 0.03*20},
		"seen at their beginning":             {0, 1e6, 19e6, 5, 0.019 + 0.05*20},
		"programs that have what they want":   {1, 10e6, 0, 5, 0.01 + 0.05},
		"one in a while, which does not last": {0, 1e6, 9e6, 0, 0.009},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			p := tree.add("S", 250, 125)
			tree.child(49, 42, "bash", 1000, 0)
			l := newLooks(tree, p)
			for look := range uint32(4) {
				tree.main(0, 5, "61 0x1 0x2", "do_wait")
				tree.write("42/stat", fmt.Sprintf("42 (x) S 1 42 42 0 -1 4194304 1 0 0 0 250 50 %d 0 20 0 9 0 %d 1000 1", 100+tc.reaped*uint64(look), begun))
				require.NoError(t, os.RemoveAll(filepath.Join(tree.root, fmt.Sprint(49+look))))
				tree.child(50+look, 42, "bash", tc.cpu, 1<<20)
				tree.write(fmt.Sprintf("%d/schedstat", 50+look), fmt.Sprintf("%d %d 1\n", tc.ran, tc.delayed))
				tree.write(fmt.Sprintf("%d/status", 50+look), status("R", 0, 7))
				in := l.look().Inside
				if look > 0 {
					require.InDelta(t, tc.wants, in.Children, 0.001)
					require.Zero(t, in.IO, "it reads its own program")
				}
			}
		})
	}
}

// A thread that polls wakes again and again, and each time waits for a CPU where others have them.
// With a CPU it would do no more. One that computes wants the CPU whenever it runs.
func TestAThreadThatPollsIsNotStarved(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		ran, delayed time.Duration // in each second
		sleeps       uint64
		starved      bool
	}{
		"it polls each millisecond, and waits for 30":         {2 * time.Millisecond, 960 * time.Millisecond, 32, false},
		"it polls each millisecond, and waits for little":     {40 * time.Millisecond, 100 * time.Millisecond, 800, false},
		"it computes, and has a twentieth of a CPU":           {50 * time.Millisecond, 940 * time.Millisecond, 0, true},
		"it computes for 5 ms between two locks":              {50 * time.Millisecond, 940 * time.Millisecond, 10, true},
		"it computes, and a limit holds it back":              {0, 990 * time.Millisecond, 0, true},
		"it has waited for a lock, computes since, and waits": {10 * time.Millisecond, 600 * time.Millisecond, 2, true},
	} {
		for _, tid := range []uint32{42, 43} {
			t.Run(fmt.Sprintf("%s, thread %d", name, tid), func(t *testing.T) {
				tree := newTree(t)
				l := newLooks(tree, tree.add("S", 250, 125))
				var how socketstall.Activity
				var before Usage
				for look := range time.Duration(4) {
					tree.add("S", 250+uint64(look), 125)
					tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
					turns := fmt.Sprintf("%d %d 1\n", second+look*tc.ran, second+look*tc.delayed)
					status := status("R", 50+uint64(look)*tc.sleeps, uint64(look))
					if tid == 42 {
						tree.write("42/schedstat", turns)
						tree.write("42/status", status)
					} else {
						tree.write("42/schedstat", "1 0 1\n")
						tree.write("42/task/43/schedstat", turns)
						tree.write("42/task/43/status", status)
					}
					out := l.look()
					if how = ""; look > 0 {
						how, _ = out.Does(before, second, 0)
					}
					before = out.Usage()
					require.True(t, tc.starved || tid == 42 || how != socketstall.Starved, "look %d: one look tells of no thread whether it polls", look)
				}
				want := socketstall.Idle
				if tc.starved {
					want = socketstall.Starved
				}
				require.Equal(t, want, how)
			})
		}
	}
}

// A turn of a thread that polls may count as long, as where the machine is paused meanwhile. It computes where the next one is, too:
// until then nobody knows whether it was at rest.
func TestAThreadThatPollsMayHaveALongTurn(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
	ran, delayed, sleeps := time.Duration(0), time.Duration(0), uint64(50)
	look := func(turns, waited time.Duration) *Inside {
		ran, delayed, sleeps = ran+turns, delayed+waited, sleeps+3
		tree.write("42/task/43/schedstat", fmt.Sprintf("%d %d 1", 1+ran, delayed))
		tree.write("42/task/43/status", status("S", sleeps, sleeps))
		return l.look().Inside
	}
	const short, long, most, some = 100 * time.Microsecond, 4 * time.Millisecond, 900 * time.Millisecond, 100 * time.Millisecond
	look(0, most)
	for range 3 {
		in := look(short, most)
		require.Zero(t, in.Starved, "it polls")
		require.False(t, in.Unsure, "it polls")
		in = look(long, most)
		require.Zero(t, in.Starved, "and had one long turn")
		require.True(t, in.Unsure, "and had one long turn")
	}
	require.False(t, look(short, most).Unsure)
	require.False(t, look(long, some).Unsure, "it had a CPU when it could run")
	require.False(t, look(short, most).Unsure)
	in := look(long, most)
	require.Zero(t, in.Starved)
	require.True(t, in.Unsure)
	in = look(long, most)
	require.InDelta(t, 0.9, in.Starved, 0.001, "it computes")
	require.False(t, in.Unsure)
}

// Of several threads that poll, each has a turn now and then: then a rank that rests is told to.
func TestThreadsThatPollAndHaveTurns(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
	sleeps := map[uint32]uint64{43: 0, 44: 0}
	look := func(turns ...uint32) bool {
		for _, tid := range turns {
			sleeps[tid] += 50
		}
		for tid, n := range sleeps {
			file := fmt.Sprintf("42/task/%d", tid)
			tree.write(file+"/status", status("R", n, 7))
			tree.write(file+"/schedstat", fmt.Sprintf("%d 1 1\n", n*1000))
		}
		return l.look().Inside.Unsure
	}
	for range 4 {
		require.False(t, look(43, 44))
	}
	for n := range uint32(3 * looksUntilGivenUp) {
		require.Equal(t, n < looksUntilGivenUp, look(43+n/2%2), n)
	}
}

// A thread that polls, and has no turn from look to look, shows that its process has no CPU: that is no rest,
// for some looks.
func TestAThreadThatPollsAndHasNoTurn(t *testing.T) {
	for _, tid := range []uint32{42, 43} {
		tree := newTree(t)
		l := newLooks(tree, tree.add("S", 250, 125))
		tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
		file := map[uint32]string{42: "42", 43: "42/task/43"}[tid]
		unsure := func(state string, sleeps uint64) bool {
			tree.write(file+"/status", status(state, sleeps, 7))
			tree.write(file+"/schedstat", fmt.Sprintf("%d 1 1\n", sleeps*1000))
			return l.look().Inside.Unsure
		}
		for look := range uint64(4) {
			require.False(t, unsure("R", 50*look), "thread %d polls", tid)
		}
		for range looksWithoutTurn {
			require.True(t, unsure("R", 150), "thread %d has no turn", tid)
		}
		require.False(t, unsure("R", 150), "nobody is above all suspicion")
		require.False(t, unsure("S", 250), "it has had a turn")
		require.False(t, unsure("R", 250), "it has just woken")
		require.True(t, unsure("R", 250))
	}
}

// Between two looks a rank that polls is not taken for one that is starved.
func TestAMainThreadThatPollsStaysKnown(t *testing.T) {
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	polls := func(look uint64) {
		tree.main(0, 5+32*look, "202 0x1 0x2", "futex_do_wait")
		tree.write("42/schedstat", fmt.Sprintf("%d %d 1\n", 2e6*look, 960e6*look))
	}
	polls(1)
	require.False(t, l.look().Polls, "nobody can tell yet")
	polls(2)
	second := l.look()
	before := second.Usage()
	polls(3)
	out := l.Read(l.process, false)
	require.True(t, out.Polls)
	how, _ := out.Does(before, time.Second, 0)
	require.Equal(t, socketstall.Idle, how)

	for look := range uint64(20) { // one that rests for long is looked into twice in ten rounds
		before = out.Usage()
		polls(4 + look)
		if look%10 < 2 {
			out = l.look()
		} else {
			l.Begin()
			out = l.Read(l.process, false)
		}
		require.True(t, out.Polls, "look %d", look)
		how, _ = out.Does(before, time.Second, 0)
		require.Equal(t, socketstall.Idle, how, "look %d", look)
	}
}

// A thread polled long ago, and has no turn now: what it does nobody knows.
func TestThatAThreadPolledIsForgotten(t *testing.T) {
	for rounds, want := range map[int]socketstall.Activity{remembered: socketstall.Idle, remembered + 1: socketstall.Starved} {
		for _, tid := range []uint32{42, 43} {
			tree := newTree(t)
			l := newLooks(tree, tree.add("S", 250, 125))
			tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
			look := func(sleeps, preempted uint64) Process {
				file := map[uint32]string{42: "42", 43: "42/task/43"}[tid]
				tree.write(file+"/status", status("R", sleeps, preempted))
				tree.write(file+"/schedstat", fmt.Sprintf("%d 1 1\n", sleeps*1000))
				return l.look()
			}
			look(5, 7)
			look(50, 7)
			for range rounds - 1 {
				l.Begin()
			}
			before := look(100, 7)
			out := look(100, 7)
			how, _ := out.Does(before.Usage(), time.Second, 0)
			require.Equal(t, want, how, "%d rounds, thread %d", rounds, tid)
		}
	}
}

// A child that polls computes nothing, however long it waits for a CPU.
func TestAChildThatPollsIsNotStarved(t *testing.T) {
	tree := newTree(t)
	p := tree.add("S", 250, 125)
	tree.main(1000, 5, "61 0x1 0x2", "do_wait")
	l := newLooks(tree, p)
	var in *Inside
	for look := range uint64(4) {
		tree.child(50, 42, "tokenizer", 100+look, 0)
		tree.write("50/schedstat", fmt.Sprintf("%d %d 1\n", 2e6*look, 900e6*look))
		tree.write("50/status", status("R", 5+32*look, 7))
		in = l.look().Inside
	}
	require.InDelta(t, 0.01, in.Children, 0.001)
	require.False(t, in.Unsure)

	tree.child(50, 42, "tokenizer", 104, 0) // it computes since, or had one long turn
	tree.write("50/schedstat", fmt.Sprintf("%d %d 1\n", int(60e6), int(3600e6)))
	tree.write("50/status", status("R", 101, 17))
	require.True(t, l.look().Inside.Unsure)
}

// A limit counts in the level that holds the rank back most, and only while it does.
func TestALimitThatHoldsItBackIsNamed(t *testing.T) {
	tree := newTree(t)
	t.Setenv("HOST_SYS", filepath.Join(tree.root, "sys"))
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
	tree.write("42/cgroup", "0::/pod/c\n")
	tree.write("pressure/cpu", "some avg10=12.00 avg60=0.00 avg300=0.00 total=1\n")
	tree.write("sys/fs/cgroup/pod/c/cpu.max", "100000 100000\n")
	tree.write("sys/fs/cgroup/pod/cpu.max", "150000 100000\n")
	ticks := uint64(250)
	look := func(own, pod, delayed uint64) *Inside {
		ticks += 5
		tree.write("sys/fs/cgroup/pod/c/cpu.stat", fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", (ticks-250)*2, own))
		tree.write("sys/fs/cgroup/pod/cpu.stat", fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", (ticks-250)*2, pod))
		tree.add("S", ticks, 125)
		tree.write("42/schedstat", fmt.Sprintf("1 %d 1", delayed))
		return l.look().Inside
	}
	look(0, 0, 1)
	require.Zero(t, look(0, 0, 1).Limit, "nothing to compare with, or nothing held back")
	in := look(2, 9, 900_000_001)
	require.Equal(t, CPULimit{Cgroup: "/pod", Cores: 1.5, Throttled: 0.9}, in.Limit)
	require.InDelta(t, 12, in.Pressure, 0.001)
	in = look(3, 9, 900_000_001)
	require.Equal(t, CPULimit{Cgroup: "/pod/c", Cores: 1, Throttled: 0.1}, in.Limit)
	require.Zero(t, in.Pressure, "no thread waits")
	require.Zero(t, look(3, 9, 900_000_001).Limit, "it is over")
}

func TestFrozenRank(t *testing.T) {
	tree := newTree(t)
	t.Setenv("HOST_SYS", filepath.Join(tree.root, "sys"))
	l := newLooks(tree, tree.add("D", 250, 125))
	tree.main(0, 5, "202 0x1 0x2", "futex_do_wait")
	tree.write("42/cgroup", "6:freezer:/docker/c\n")
	tree.write("sys/fs/cgroup/freezer/docker/c/freezer.state", "FROZEN\n")
	require.Equal(t, socketstall.Frozen, l.look().State)
}

// TestThousandsOfChildren: each has its turn, and a round stays short.
func TestThousandsOfChildren(t *testing.T) {
	const children = 1000
	tree := newTree(t)
	l := newLooks(tree, tree.add("S", 250, 125))
	tree.main(0, 5, "running", "0")
	for pid := range uint32(children) {
		tree.child(1000+pid, 42, "worker", 0, 0)
	}
	read := 0
	for range children/maxChildren + 2 {
		before := len(l.trees.uses)
		l.look()
		require.LessOrEqual(t, len(l.trees.uses)-before, maxChildren+1)
		read = len(l.trees.uses)
	}
	require.Equal(t, children+1, read)
	tree.child(1500, 42, "worker", 1000, 0)
	busy := false
	for range children/maxChildren + 2 {
		in := l.look().Inside
		busy = busy || in.Busiest.PID == 1500
		require.Len(t, in.Tree, maxTree)
	}
	require.True(t, busy)
	for range forgotten + 2 {
		l.Begin()
	}
	require.Empty(t, l.trees.uses)
}

// BenchmarkLookIntoTrees: one operation is one round of looks into the trees of eight
// silent ranks with eight children each, beside all other processes of this machine.
func BenchmarkLookIntoTrees(b *testing.B) {
	const ranks, children = 8, 8
	r := New(procfs.Open(""))
	var all []identity.Process
	for rank := range ranks {
		cmd := exec.Command("sh", "-c", fmt.Sprintf("for i in $(seq %d); do sleep 1000 & done; echo ready; wait", children))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		require.NoError(b, err)
		require.NoError(b, cmd.Start())
		b.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
		_, err = out.Read(make([]byte, 16))
		require.NoError(b, err)
		stat, err := procfs.Open("").Stat(uint32(cmd.Process.Pid))
		require.NoError(b, err)
		all = append(all, identity.Process{PID: stat.PID, Rank: rank, StartNS: stat.StartNS()})
	}
	seen := 0
	b.ResetTimer()
	for b.Loop() {
		r.Begin()
		for _, p := range all {
			out := r.Read(p, false)
			r.Inspect(&out, func(uint32) bool { return false })
			seen = len(out.Inside.Tree)
		}
	}
	require.Equal(b, children, seen)
	b.ReportMetric(float64(len(r.trees.family.parent)), "processes")
}
