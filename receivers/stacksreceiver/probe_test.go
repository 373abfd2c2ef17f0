//go:build linux && (amd64 || arm64)

package stacksreceiver

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/unwind/unwindtest"
)

// script works for a while: it sleeps and runs. Then it stands in a function of its own.
const script = `
import sys, time
def load(n):
    return sum(range(n))
def step():
    load(1000)
    time.sleep(0.005)
def save_checkpoint():
    print("stands", flush=True)
    %STAND%
def main():
    print("works", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        step()
    save_checkpoint()
main()
`

// requirePython skips the test in a machine, which has no Python.
func requirePython(t testing.TB) {
	t.Helper()
	privtest.Require(t)
	if os.Getenv("VMTESTS_KERNEL") != "" {
		t.Skip("this machine has no Python")
	}
}

// startPython starts the script, which works for so many seconds, and returns a function that
// waits for its next line.
func startPython(t testing.TB, stand, seconds string) (cmd *exec.Cmd, line func() string) {
	t.Helper()
	requirePython(t)
	file := filepath.Join(t.TempDir(), "train.py")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(script, "%STAND%", stand, 1)), 0o600))
	cmd = exec.Command("/usr/bin/python3", file, seconds)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "install python3")
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return cmd, func() string {
		text, err := lines.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(text)
	}
}

// living is a process as the identity extension knows it.
func living(t testing.TB, pid, number int) identity.Process {
	t.Helper()
	stat, err := procfs.Open("").WithPatience(hosttest.Patience).Stat(uint32(pid))
	require.NoError(t, err)
	p := rank(uint32(pid), number)
	p.StartNS = stat.StartNS()
	return p
}

// openPatient opens what reads stacks here, and lets it read for long, as on a busy machine.
func openPatient(t *testing.T) source {
	t.Helper()
	s, err := openSource()
	require.NoError(t, err)
	s.(*machine).fs.WithPatience(hosttest.Patience)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// real is a bench with this machine.
func (b *bench) real(t *testing.T) {
	t.Helper()
	logs, err := NewFactory().CreateLogs(t.Context(), b.Settings, b.config, b.Sink)
	require.NoError(t, err)
	b.StartAll(t, logs)
}

// at waits for a stack that the receiver took in that function.
func nextIn(t *testing.T, b *bench, function string) plog.LogRecord {
	t.Helper()
	for {
		r := b.Next(t)
		if a := r.Attributes().AsRaw(); r.EventName() == "process.stack" && a["code.function.name"] == function {
			return r
		}
	}
}

// Without Python a rank is where its compiled code is: on every kernel.
func TestARankInCompiledCodeIsToldWithItsFunctions(t *testing.T) {
	privtest.Require(t)
	pid, _ := unwindtest.Start(t)
	b := newBench(t)
	b.Resolver.Know(living(t, int(pid), 3))
	b.real(t)
	r := b.Next(t)
	require.Equal(t, "process.stack", r.EventName())
	a := r.Attributes().AsRaw()
	require.Equal(t, []any{int64(pid), int64(3), "asleep", "S", "claimed"}, []any{a["process.pid"], a["gen_ai.training.rank"], a["process.stack.reason"], a["process.stack.state"], a["tracecore.trust"]})
	require.Contains(t, a["process.stack.kernel_function"], "read")
	require.NotContains(t, a, "process.stack.frames")
	native := a["process.stack.native"].([]any)
	require.NotEmpty(t, native)
	require.Regexp(t, "^"+unwindtest.Functions()[0]+" in .*frames$", native[0])
}

func TestARankAsleepInItsOwnFunctionIsToldWithItsLine(t *testing.T) {
	cmd, line := startPython(t, "time.sleep(1000)", "3")
	b := newBench(t)
	b.Resolver.Know(living(t, cmd.Process.Pid, 3))
	b.real(t)
	require.Equal(t, "works", line())
	require.Equal(t, "stands", line())
	stood := time.Now()
	r := nextIn(t, b, "save_checkpoint")
	t.Logf("told %s after it stood still", r.ObservedTimestamp().AsTime().Sub(stood))
	a := r.Attributes().AsRaw()
	require.Equal(t, "train.py:10 in save_checkpoint < main", a["process.stack.where"])
	require.Equal(t, []any{"asleep", "own_code", "S", "claimed"}, []any{a["process.stack.reason"], a["process.stack.wait_class"], a["process.stack.state"], a["tracecore.trust"]})
	require.Equal(t, filepath.Join(filepath.Dir(cmd.Args[1]), "train.py"), a["code.file.path"])
	require.EqualValues(t, 10, a["code.line.number"])
	require.Contains(t, a["process.stack.kernel_function"], "nanosleep")
	require.Contains(t, a["process.runtime.description"], "CPython 3.")
	frames := a["process.stack.frames"].([]any)
	require.Len(t, frames, 3)
	require.Equal(t, map[string]any{"code.function.name": "<module>", "code.file.path": cmd.Args[1], "code.line.number": int64(17)}, frames[2])
	require.NotEmpty(t, a["process.stack.native"])
	require.NotContains(t, a, "process.stack.unread")
}

// inCollective waits as in PyTorch.
const inCollective = `exec(compile("time.sleep(3600)", "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", "exec"))`

func TestARankThatTriesAgainIsToldWithItsLine(t *testing.T) {
	b := newBench(t)
	b.Wants = func(r plog.LogRecord) bool { return r.Attributes().AsRaw()["process.stack.reason"] == "awaited" }
	var ranks []identity.Process
	for i, stand := range []string{inCollective, inCollective, "while True: time.sleep(0.3); load(1000)"} {
		cmd, line := startPython(t, stand, "3")
		ranks = append(ranks, living(t, cmd.Process.Pid, i))
		require.Equal(t, "works", line())
	}
	b.Resolver.Know(ranks...)
	b.real(t)
	a := nextIn(t, b, "save_checkpoint").Attributes().AsRaw()
	require.EqualValues(t, 2, a["gen_ai.training.rank"])
	require.Equal(t, "train.py:10 in save_checkpoint < main", a["process.stack.where"])
	require.EqualValues(t, 10, a["code.line.number"])
	require.NotContains(t, a, "process.stack.native")
}

func TestARankThatSpinsInOneCallIsTold(t *testing.T) {
	cmd, line := startPython(t, "while True: pass", "0")
	b := newBench(t)
	b.config.Patience = 3 * time.Second
	b.Resolver.Know(living(t, cmd.Process.Pid, 3))
	b.real(t)
	require.Equal(t, "works", line())
	require.Equal(t, "stands", line())
	a := nextIn(t, b, "save_checkpoint").Attributes().AsRaw()
	require.Equal(t, "same_call", a["process.stack.reason"])
	require.Equal(t, true, a["process.stack.gil"])
}

// TestRealLoops: what a look at real Python shows of a loop that leads nowhere, and of work in one
// call: each shows what a look each second would, in looks as fast as the machine allows.
func TestRealLoops(t *testing.T) {
	requirePython(t)
	for name, tc := range map[string]struct {
		stands string
		spins  bool
	}{
		"waits for a time":           {"end = time.monotonic() + 3600\n    while time.monotonic() < end: pass", true},
		"waits for ever":             {"while True: pass", true},
		"sorts in C":                 {"import random; big = [random.random() for i in range(2_000_000)]; print(\"begins\", flush=True)\n    while True: sorted(big)", false},
		"computes in an extension":   {"import hashlib; big = bytes(500_000_000); print(\"begins\", flush=True)\n    while True: hashlib.sha256(big).digest()", false},
		"counts words":               {"words = [str(i % 999) for i in range(1_000_000)]; counts = dict.fromkeys(words, 0); print(\"begins\", flush=True)\n    while True:\n        for w in words: counts[w] += 1", false},
		"waits for a flag":           {"flag = False\n    while not flag: pass", true},
		"waits for a lock in C":      {"import ctypes; c, l = ctypes.CDLL(None), ctypes.c_int(); c.pthread_spin_init(ctypes.byref(l), 1); c.pthread_spin_lock(ctypes.byref(l))\n    c.pthread_spin_lock(ctypes.byref(l))", true},
		"the same with the GIL":      {"import ctypes; c, l = ctypes.PyDLL(None), ctypes.c_int(); c.pthread_spin_init(ctypes.byref(l), 1); c.pthread_spin_lock(ctypes.byref(l))\n    c.pthread_spin_lock(ctypes.byref(l))", true},
		"fills memory in C":          {"import ctypes; c, m = ctypes.CDLL(None), ctypes.create_string_buffer(500_000_000); print(\"begins\", flush=True)\n    while True: c.memset(m, 7, 500_000_000)", false},
		"a large number":             {"print(\"begins\", flush=True)\n    3 ** 100_000_000", false},
		"calls a function each time": {"print(\"begins\", flush=True)\n    while True: load(1000)", false},
		"a list that grows":          {"big = []; print(\"begins\", flush=True)\n    while len(big) < 200_000_000: big.append(time.monotonic())", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, line := startPython(t, tc.stands, "0")
			require.Equal(t, "works", line())
			require.Equal(t, "stands", line())
			p := living(t, cmd.Process.Pid, 3)
			m := openPatient(t)
			_, err := m.Prepare(p.PID)
			require.NoError(t, err)
			if !tc.spins {
				require.Equal(t, "begins", line(), "it has what it works on")
			}
			var s spin
			spins, samples := false, 0
			// On a busy machine many looks find a loop where the one before did: of those nothing is learned.
			for now, limit := time.Now(), time.Now().Add(hosttest.Patience); (tc.spins || samples < 80) && !spins && !s.work && time.Now().Before(limit); now = now.Add(time.Second) {
				mains, err := m.LookAt([]uint32{p.PID})
				require.NoError(t, err)
				require.NoError(t, mains[0].Err)
				place, err := m.Place(p.PID)
				if err != nil {
					place = nowhere
				}
				if !s.look(now, mains[0].Status, place) {
					time.Sleep(20 * time.Millisecond) // so that the looks are of different moments
					continue
				}
				has, err := m.Usage(p.PID)
				require.NoError(t, err)
				has.main, err = m.OnCPU(p.PID)
				require.NoError(t, err)
				has.others = max(0, has.cpu-has.main)
				seen, err := m.Stack(p.PID, p.StartNS)
				require.NoError(t, err)
				samples++
				spins = s.take(now, seen, has)
			}
			t.Logf("%d looks at its compiled code, %d of use, %d in the interpreter's loop, %d at the clock, lines %d to %d, %d places", samples, s.samples, s.loops, s.asks, s.low, s.high, len(s.places))
			require.Equal(t, tc.spins, spins)
		})
	}
}

// A rank ends while it is read again and again.
func TestARankThatEndsIsNoFailure(t *testing.T) {
	cmd, line := startPython(t, "time.sleep(1000)", "0")
	require.Equal(t, "works", line())
	require.Equal(t, "stands", line())
	p := living(t, cmd.Process.Pid, 3)
	s := openPatient(t)
	_, err := s.Prepare(p.PID)
	require.NoError(t, err)
	_, err = s.Stack(p.PID, p.StartNS+1)
	require.ErrorIs(t, err, procfs.ErrGone, "another process had that number")
	seen := 0
	for end := time.Now().Add(hosttest.Patience); ; {
		require.True(t, time.Now().Before(end))
		_, _ = s.Place(p.PID)
		stack, err := s.Stack(p.PID, p.StartNS)
		if err == nil && stack.Threads[0].State != 'Z' {
			if seen++; seen == 20 {
				require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
			}
			continue
		}
		break // a zombie, or gone
	}
	require.GreaterOrEqual(t, seen, 20)
	require.ErrorContains(t, cmd.Wait(), "terminated")
	_, err = s.Stack(p.PID, p.StartNS)
	require.ErrorIs(t, err, procfs.ErrGone)
	mains, err := s.LookAt([]uint32{p.PID})
	require.NoError(t, err)
	require.ErrorIs(t, mains[0].Err, procfs.ErrGone)
	s.Release(p.PID)
}

// BenchmarkHealthyNode is one look at eight ranks at work, which comes each second. Time of
// this process on a CPU counts, not that in which others had it.
func BenchmarkHealthyNode(b *testing.B) { benchmarkLook(b, "pass", "3600") }

// BenchmarkNodeThatWaits is one look at eight ranks that sleep, as in a long wait of each step.
// Their processes are looked into, too.
func BenchmarkNodeThatWaits(b *testing.B) { benchmarkLook(b, "time.sleep(3600)", "0") }

func benchmarkLook(b *testing.B, stand, seconds string) {
	b.Helper()
	w, now := watching(b, 8, stand, seconds)
	now = now.Add(-recentCalls - time.Minute) // it is no young job
	require.NoError(b, w.look(b.Context(), now))
	now = now.Add(recentCalls)
	look := func() {
		time.Sleep(time.Second) // in less, ranks at work have made no steps
		now = now.Add(time.Second)
		require.NoError(b, w.look(b.Context(), now))
	}
	for range 10 {
		look()
	}
	before := onCPU(b)
	for b.Loop() {
		look()
	}
	used := onCPU(b) - before
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(used.Seconds()/float64(b.N)*100, "%core")
}

func onCPU(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func watching(b *testing.B, ranks int, stand, seconds string) (*watch, time.Time) {
	b.Helper()
	bench := newBench(b)
	var known []identity.Process
	for i := range ranks {
		cmd, line := startPython(b, stand, seconds)
		require.Equal(b, "works", line())
		known = append(known, living(b, cmd.Process.Pid, i))
	}
	bench.Resolver.Know(known...)
	r, err := build(bench.Settings, bench.config, bench.Sink, surroundings{longest: longestLook})
	require.NoError(b, err)
	r.resolver = bench.Resolver
	b.Cleanup(r.telemetry.Shutdown)
	s, err := openSource()
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return newWatch(r, s), time.Now()
}
