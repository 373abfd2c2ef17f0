package unwind

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/taskstack"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// compile builds the program of the tests.
func compile(t testing.TB, flags ...string) string {
	t.Helper()
	hosttest.Require(t, "it reads the registers of another process")
	cc, err := exec.LookPath("cc")
	if err != nil {
		cc, err = exec.LookPath("gcc")
	}
	require.NoError(t, err, "the program of this test is C: apt install gcc libc6-dev")
	program := filepath.Join(t.TempDir(), "waits")
	out, err := exec.Command(cc, append(flags, "-o", program, "testdata/waits.c", "-pthread", "-ldl")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// own is what a program says of its own stack.
type own struct {
	pid, tid uint32
	frames   []string // "address name+offset"
}

// start runs a program until it has told its stack.
func start(t testing.TB, program string, arguments ...string) own {
	t.Helper()
	return startIn(t, "", program, arguments...)
}

// startIn starts it in a root of its own, "" for that of the host.
func startIn(t testing.TB, root, program string, arguments ...string) own {
	t.Helper()
	cmd := exec.Command(program, arguments...)
	if root != "" {
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: root}, "/"
	}
	stdin, err := cmd.StdinPipe() // held open: a read of it waits
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	o := own{pid: uint32(cmd.Process.Pid)}
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	tid, err := strconv.ParseUint(lines.Text(), 10, 32)
	require.NoError(t, err)
	for o.tid = uint32(tid); lines.Scan() && lines.Text() != "end"; {
		o.frames = append(o.frames, lines.Text())
	}
	require.Equal(t, "end", lines.Text())
	return o
}

func open(t testing.TB) (*Unwinder, *taskstack.Probe) {
	t.Helper()
	fs := procfs.Open("/proc").WithPatience(hosttest.Patience)
	probe, err := taskstack.Open(taskstack.Options{FS: fs})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, probe.Close()) })
	u, err := New(fs, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u, probe
}

// asleep reads the stack of a thread once it sleeps.
func asleep(t testing.TB, probe *taskstack.Probe, tid uint32) taskstack.Stack {
	t.Helper()
	for deadline := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) {
		var s taskstack.Stack
		require.NoError(t, probe.Read(tid, &s))
		if s.State == 'S' && s.Still {
			return s
		}
		require.True(t, time.Now().Before(deadline), "%+v", s)
	}
}

// asleepInAPipe reads the stack of a thread once it sleeps in a read of a pipe.
func asleepInAPipe(t testing.TB, probe *taskstack.Probe, tid uint32) taskstack.Stack {
	t.Helper()
	for deadline := time.Now().Add(hosttest.Patience); ; time.Sleep(time.Millisecond) {
		s := asleep(t, probe, tid)
		if slices.ContainsFunc(s.Kernel, func(f taskstack.Function) bool { return strings.HasSuffix(f.Name, "pipe_read") }) {
			return s
		}
		require.True(t, time.Now().Before(deadline), "%+v", s.Kernel)
	}
}

func unwind(t testing.TB, u *Unwinder, pid uint32, do func(*Process) Trace) Trace {
	t.Helper()
	p, err := u.Process(pid)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	return do(p)
}

// printed is a frame as the program prints it.
func printed(f Frame) string {
	if f.Symbol == "" {
		return fmt.Sprintf("%x -", f.PC)
	}
	return fmt.Sprintf("%x %s+%x", f.PC, f.Symbol, f.Offset)
}

// agrees compares what is above the function that waits: tell called backtrace and is left by now.
func agrees(t testing.TB, o own, trace Trace) {
	t.Helper()
	require.NoError(t, trace.End, "%+v", trace.Frames)
	require.True(t, trace.Whole)
	want := o.frames[2:] // without tell, and without wait_here, which is further by now
	require.Greater(t, len(trace.Frames), len(want), "%+v", trace.Frames)
	var got []string
	for _, f := range trace.Frames[len(trace.Frames)-len(want):] {
		got = append(got, printed(f))
	}
	require.Equal(t, want, got, "%+v", trace.Frames)
}

// TestAThreadKnowsItsOwnFrames compares with backtrace(3) of the same thread: each address and
// each name to the start of the thread.
func TestAThreadKnowsItsOwnFrames(t *testing.T) {
	u, probe := open(t)
	for name, flags := range map[string][]string{
		"without optimization": {"-O0", "-rdynamic"},
		"optimized":            {"-O2", "-rdynamic"},
		"small":                {"-Os", "-rdynamic", "-fomit-frame-pointer"},
		"frame pointers":       {"-O2", "-rdynamic", "-fno-omit-frame-pointer"},
		"stripped":             {"-O2", "-rdynamic", "-s"},
		"no symbols":           {"-O2", "-s"},
		"a fixed address":      {"-O2", "-rdynamic", "-no-pie"},
		"the old hash":         {"-O2", "-rdynamic", "-Wl,--hash-style=sysv"},
		"code apart":           {"-O2", "-rdynamic", "-Wl,-z,separate-code"},
		"code not apart":       {"-O2", "-rdynamic", "-Wl,-z,noseparate-code"},
	} {
		program := compile(t, flags...)
		for _, wait := range [][]string{{"sleep"}, {"lock"}, {"read"}, {"signal"}, {"read", "first thread"}} {
			t.Run(name+"/"+strings.Join(wait, ", "), func(t *testing.T) {
				o := start(t, program, wait...)
				trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(asleep(t, probe, o.tid).Registers)) })
				agrees(t, o, trace)
			})
		}
	}
}

// TestAStaticProgramIsUnwound, which has no dynamic symbols.
func TestAStaticProgramIsUnwound(t *testing.T) {
	u, probe := open(t)
	for _, flags := range [][]string{{"-O2", "-static", "-Wl,--eh-frame-hdr"}, {"-O2", "-static-pie"}} {
		o := start(t, compile(t, flags...), "read")
		trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(asleep(t, probe, o.tid).Registers)) })
		for i, line := range o.frames { // dladdr names what is in no table of the file
			address, _, _ := strings.Cut(line, " ")
			o.frames[i] = address + " -"
		}
		agrees(t, o, trace)
	}
}

// TestAThreadThatRunsIsUnwoundFromASample: its stack is copied with its registers.
func TestAThreadThatRunsIsUnwoundFromASample(t *testing.T) {
	u, _ := open(t)
	o := start(t, compile(t, "-O2", "-rdynamic"), "spin")
	var s taskstack.Stack
	require.NoError(t, taskstack.Sample(o.tid, hosttest.Patience, &s))
	trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.UnwindCopy(Registers(s.Registers), s.Memory) })
	require.Equal(t, "wait_here", trace.Frames[0].Symbol)
	agrees(t, o, trace)
}

// TestTheVDSOIsUnwound, to the function of it that was called: a thread that asks for the time again and again, as one does that waits
// for its GPU, is mostly in code that is in no file.
func TestTheVDSOIsUnwound(t *testing.T) {
	u, _ := open(t)
	o := start(t, compile(t, "-O2", "-rdynamic"), "clock")
	for deadline := time.Now().Add(hosttest.Patience); ; {
		var s taskstack.Stack
		require.NoError(t, taskstack.Sample(o.tid, hosttest.Patience, &s))
		trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.UnwindCopy(Registers(s.Registers), s.Memory) })
		agrees(t, o, trace)
		vdso := slices.IndexFunc(trace.Frames, func(f Frame) bool { return f.Object != "[vdso]" })
		if vdso > 0 { // a clock of a hypervisor is read in a function of its own, which has no symbol (vread_pvclock)
			require.Contains(t, trace.Frames[vdso-1].Symbol, "clock_gettime")
			return
		}
		require.True(t, time.Now().Before(deadline), "%+v", trace.Frames)
	}
}

// TestPythonInCIsUnwound: a thread of an interpreter, stripped, to its start.
func TestPythonInCIsUnwound(t *testing.T) {
	u, probe := open(t)
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		python, err = exec.LookPath("python3")
	}
	require.NoError(t, err, "this test looks at an interpreter: apt install python3")
	const script = `import sys, threading, time
def f(n):
    if n: return f(n - 1)
    print(threading.get_native_id(), "end", sep="\n", flush=True)
    time.sleep(86400)
threading.Thread(target=f, args=(30,), daemon=True).start() if len(sys.argv) > 1 else f(30)
time.sleep(86400)`
	for _, arguments := range [][]string{{"-c", script}, {"-c", script, "thread"}} {
		o := start(t, python, arguments...)
		var names []string
		for end := time.Now().Add(hosttest.Patience); !slices.Contains(names, "clock_nanosleep"); { // before, it may wait for the interpreter's lock
			require.True(t, time.Now().Before(end), "%v", names)
			trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(asleep(t, probe, o.tid).Registers)) })
			names = nil
			for _, f := range trace.Frames {
				names = append(names, f.Symbol)
			}
			if slices.Contains(names, "clock_nanosleep") {
				require.NoError(t, trace.End, "%+v", trace.Frames)
				require.True(t, trace.Whole)
			}
		}
		last := "_start"
		if len(arguments) > 2 {
			last = "" // start_thread and clone3 are not exported, and some C libraries call them otherwise
		}
		require.Equal(t, last, names[len(names)-1], "%v", names)
	}
}

// TestAProgramThatNeverHoldsStill: no stack is wrong and believed. A stack of a thread that ran
// while its memory was read ends anywhere.
func TestAProgramThatNeverHoldsStill(t *testing.T) {
	python, err := exec.LookPath("python3")
	require.NoError(t, err, "this test looks at an interpreter: apt install python3")
	neverHoldsStill(t, "", python, 300)
}

func neverHoldsStill(t *testing.T, root, python string, wanted int) {
	t.Helper()
	u, probe := open(t)
	const script = `import json, os, random, re, threading, time
print(threading.get_native_id(), "end", sep="\n", flush=True)
def f(n):
    json.loads(json.dumps({str(i): [i] for i in range(9)})); re.sub("a", "b", "banana")
    sorted([1, 3, 2], key=lambda v: -v); time.sleep(0.0001 * random.randrange(3))
    if n: f(n - 1)
while True: f(random.randrange(20))`
	o := startIn(t, root, python, "-S", "-c", script)
	believed, torn := 0, 0
	for deadline := time.Now().Add(hosttest.Patience); believed < wanted; {
		require.True(t, time.Now().Before(deadline), "%d believed, %d torn", believed, torn)
		var before, after taskstack.Stack
		require.NoError(t, probe.Read(o.tid, &before))
		trace := unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(before.Registers)) })
		require.NoError(t, probe.Read(o.tid, &after))
		if !before.HeldStill(&after) {
			torn++
			continue
		}
		believed++
		require.NoError(t, trace.End, "%+v", trace.Frames)
		require.True(t, trace.Whole)
		require.Equal(t, "_start", trace.Frames[len(trace.Frames)-1].Symbol, "%+v", trace.Frames)
	}
	t.Logf("%d believed, %d torn", believed, torn)
}

// TestFilesAreSharedAndGiveWay: a file is opened once for all processes, and the least used of
// the process that has most gives way.
func TestFilesAreSharedAndGiveWay(t *testing.T) {
	u, probe := open(t)
	program := compile(t, "-O2", "-rdynamic")
	a, b := start(t, program, "read"), start(t, program, "read")
	require.NoError(t, u.Prepare(a.pid))
	opened := len(u.files)
	require.GreaterOrEqual(t, opened, 2, "the program and the C library")
	require.NoError(t, u.Prepare(b.pid))
	require.Len(t, u.files, opened)
	u, err := New(u.fs, 1)
	require.NoError(t, err)
	defer u.Close()
	for _, o := range []own{a, b} {
		agrees(t, o, unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(asleep(t, probe, o.tid).Registers)) }))
	}
	require.Len(t, u.files, 1)
}

// TestAFileThatWasReplacedIsStillTheOldOne: the name has another file by now.
func TestAFileThatWasReplacedIsStillTheOldOne(t *testing.T) {
	u, probe := open(t)
	program := compile(t, "-O2", "-rdynamic")
	o := start(t, program, "read")
	require.NoError(t, u.Prepare(o.pid))
	require.NoError(t, os.Remove(program))
	require.NoError(t, os.WriteFile(program, make([]byte, 1<<16), 0o700))
	agrees(t, o, unwind(t, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(asleep(t, probe, o.tid).Registers)) }))
}

func BenchmarkUnwind(b *testing.B) {
	fs := procfs.Open("/proc")
	o := start(b, compile(b, "-O2", "-rdynamic"), "sleep")
	u, probe := open(b)
	s := asleep(b, probe, o.tid)
	for b.Loop() {
		if trace := unwind(b, u, o.pid, func(p *Process) Trace { return p.Unwind(Registers(s.Registers)) }); !trace.Whole {
			b.Fatal(trace.End)
		}
	}
	runtime.KeepAlive(fs)
}
