//go:build linux && (amd64 || arm64)

package taskstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/unwind/unwindtest"
)

func TestMain(m *testing.M) {
	if hangfs.IsChild() {
		os.Exit(hangfs.Child())
	}
	os.Exit(m.Run())
}

// patient waits for /proc as long as a busy machine needs.
func patient() *procfs.FS { return procfs.Open("/proc").WithPatience(hosttest.Patience) }

// openAll opens every rung that this kernel has: the first that Open takes and those below.
func openAll(t *testing.T) map[string]*Probe {
	t.Helper()
	privtest.Require(t)
	best, err := Open(Options{FS: patient()})
	require.NoError(t, err)
	first := slices.Index(Rungs(), best.Report().Rung)
	require.NoError(t, best.Close())
	require.Contains(t, []int{0, 1}, first, "this test may load BPF: %+v", best.Report())
	probes := map[string]*Probe{}
	for _, rung := range Rungs()[first:] {
		p, err := Open(Options{Rung: rung, FS: patient()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		probes[rung] = p
	}
	return probes
}

// eventually reads the stack of a thread until it is as wanted.
func eventually(t *testing.T, p *Probe, tid func() uint32, wanted func(*Stack) bool) *Stack {
	t.Helper()
	deadline := time.Now().Add(hosttest.Patience)
	var s Stack
	for {
		err := p.Read(tid(), &s)
		if err == nil && wanted(&s) {
			return &s
		}
		require.True(t, time.Now().Before(deadline), "%+v %v", s, err)
		time.Sleep(time.Millisecond)
	}
}

// in reports whether a thread is in a function whose name has part. Linux 5.10 does not tell
// where threads wait (wchan is "0").
func in(s *Stack, part string) bool {
	return slices.ContainsFunc(s.Kernel, func(f Function) bool { return strings.Contains(f.Name, part) })
}

// thread runs do on a thread of its own, which ends with it, and returns its number.
func thread(t *testing.T, do func()) (tid uint32) {
	t.Helper()
	number, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		number <- unix.Gettid()
		do()
	}()
	t.Cleanup(func() { <-done })
	return uint32(<-number)
}

// TestWhereAThreadSleeps looks at threads in system calls of different kinds, on each rung.
func TestWhereAThreadSleeps(t *testing.T) {
	probes := openAll(t)
	for name, tc := range map[string]struct {
		function string
		do       func(stop *uint32)
		wake     func(stop *uint32)
	}{
		"in a lock": {
			"futex",
			func(stop *uint32) { wait(stop) },
			func(stop *uint32) { atomic.StoreUint32(stop, 1); wake(stop) },
		},
		"sleeping": {
			"nanosleep",
			func(stop *uint32) {
				for atomic.LoadUint32(stop) == 0 {
					ts := unix.Timespec{Nsec: int64(200 * time.Millisecond)}
					_, _, _ = unix.Syscall(unix.SYS_NANOSLEEP, addressOf(&ts), 0, 0)
				}
			},
			func(stop *uint32) { atomic.StoreUint32(stop, 1) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			stop := new(uint32)
			tid := thread(t, func() { tc.do(stop) })
			defer tc.wake(stop)
			for rung, p := range probes {
				s := eventually(t, p, func() uint32 { return tid }, func(s *Stack) bool {
					return s.State == 'S' && s.Still && (rung == RungWchan && len(s.Kernel) == 0 || in(s, tc.function))
				})
				require.EqualValues(t, os.Getpid(), s.PID, rung)
				require.Equal(t, tid, s.TID, rung)
				require.False(t, s.KernelThread, rung)
				require.NotZero(t, s.Switches, rung)
				require.NotZero(t, s.Registers.Known&(1<<pc), rung)
				if rung != RungWchan {
					require.Greater(t, len(s.Kernel), 3, "%s: %v", rung, s.Kernel)
				}
			}
		})
	}
}

// TestRegistersAreThoseOfTheSystemCall finds the arguments of a read in them, and the same
// on every rung that has registers.
func TestRegistersAreThoseOfTheSystemCall(t *testing.T) {
	probes := openAll(t)
	sleeper, err := sleep()
	require.NoError(t, err)
	defer sleeper.wake()
	asleep := func(s *Stack) bool { return s.State == 'S' && s.Still && (len(s.Kernel) == 0 || in(s, "pipe_read")) }
	fd, length := 5, 1 // rdi, and rdx of amd64
	if runtime.GOARCH == "arm64" {
		fd, length = 0, 2
	}
	want := eventually(t, probes[RungHost], func() uint32 { return sleeper.tid }, asleep).Registers
	require.EqualValues(t, sleeper.pipe[0], want.Values[fd])
	require.EqualValues(t, 1, want.Values[length])
	for rung, p := range probes {
		got := eventually(t, p, func() uint32 { return sleeper.tid }, asleep).Registers
		for number := range got.Values {
			if got.Known&(1<<number) != 0 {
				require.Equal(t, want.Values[number], got.Values[number], "register %d on %s", number, rung)
			}
		}
		if rung == RungThread {
			require.Equal(t, want, got)
		}
	}
	code := runtime.FuncForPC(uintptr(want.Values[pc]))
	require.NotNil(t, code)
	require.Contains(t, strings.ToLower(code.Name()), "syscall")
}

// TestRegistersLeadToTheStartOfTheThread unwinds a program that knows what it returns to.
func TestRegistersLeadToTheStartOfTheThread(t *testing.T) {
	probes := openAll(t)
	u, err := unwind.New(patient(), 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, u.Close()) }()
	pid, returns := unwindtest.Start(t)
	for rung, p := range probes {
		if rung == RungProc || rung == RungWchan {
			continue // its frame pointer is needed, and not there
		}
		s := eventually(t, p, func() uint32 { return pid }, func(s *Stack) bool { return s.State == 'S' && s.Still })
		process, err := u.Process(pid)
		require.NoError(t, err)
		trace := process.Unwind(unwind.Registers(s.Registers))
		require.NoError(t, process.Close())
		require.NoError(t, trace.End, "%s: %+v", rung, trace.Frames)
		require.True(t, trace.Whole, rung)
		var names []string
		var addresses []uint64
		for _, f := range trace.Frames {
			names, addresses = append(names, f.Symbol), append(addresses, f.PC)
		}
		require.Equal(t, unwindtest.Functions(), names, rung)
		require.Equal(t, returns, addresses[1:], rung)
	}
}

// TestAThreadThatHangsOnAMountIsInItsFileSystem reads a thread that no signal but a deadly one
// wakes.
func TestAThreadThatHangsOnAMountIsInItsFileSystem(t *testing.T) {
	probes := openAll(t)
	for _, how := range []string{hangfs.Read, hangfs.Fault} {
		t.Run(how, func(t *testing.T) {
			f, err := hangfs.Start(hangfs.Options{Private: true})
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			v, err := f.Visit(hangfs.Visit{Accesses: []hangfs.Access{{How: how, File: hangfs.Cached}}})
			require.NoError(t, err)
			require.NoError(t, f.Freeze())
			require.NoError(t, v.Go())
			for rung, p := range probes {
				if rung == RungWchan {
					continue // the innermost function is that of a lock of a page
				}
				tids := threads(t, v.PID())
				next := 0
				s := eventually(t, p, func() uint32 {
					if next++; next%len(tids) == 0 {
						tids = threads(t, v.PID())
					}
					return tids[next%len(tids)]
				}, func(s *Stack) bool {
					return (s.State == 'S' || s.State == 'D') && (in(s, "fuse_") || in(s, "folio_wait_bit") || in(s, "lock_page") || in(s, "wait_on_page"))
				})
				require.EqualValues(t, v.PID(), s.PID, rung)
			}
		})
	}
}

func threads(t *testing.T, pid int) (tids []uint32) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	require.NoError(t, err)
	for _, entry := range entries {
		tid, err := strconv.ParseUint(entry.Name(), 10, 32)
		require.NoError(t, err)
		tids = append(tids, uint32(tid))
	}
	return tids
}

var spins atomic.Uint64

//go:noinline
func spin(stop *atomic.Bool) {
	for !stop.Load() {
		spins.Add(1)
	}
}

// TestAThreadThatRunsIsSampled: the program counter is in the loop that it runs, but for the
// moments in which Go's runtime interrupts the loop by a signal.
func TestAThreadThatRunsIsSampled(t *testing.T) {
	privtest.Require(t)
	var stop atomic.Bool
	tid := thread(t, func() { spin(&stop) })
	defer stop.Store(true)
	for deadline := time.Now().Add(hosttest.Patience); ; {
		var s Stack
		require.NoError(t, Sample(tid, hosttest.Patience, &s))
		require.Equal(t, tid, s.TID)
		require.EqualValues(t, os.Getpid(), s.PID)
		require.NotEmpty(t, s.Memory)
		code := runtime.FuncForPC(uintptr(s.Registers.Values[pc]))
		require.NotNil(t, code)
		if code.Entry() == reflect.ValueOf(spin).Pointer() { // of an inlined function that is the caller's
			return
		}
		require.True(t, time.Now().Before(deadline), code.Name())
	}
}

func TestAThreadThatSleepsIsNotSampled(t *testing.T) {
	privtest.Require(t)
	sleeper, err := sleep()
	require.NoError(t, err)
	defer sleeper.wake()
	require.ErrorIs(t, Sample(sleeper.tid, time.Millisecond, &Stack{}), ErrAsleep)
}

// TestAKernelThreadHasNoRegisters looks at the father of kernel threads, or makes sure that
// this pid namespace has none.
func TestAKernelThreadHasNoRegisters(t *testing.T) {
	probes := openAll(t)
	name, err := os.ReadFile("/proc/2/comm")
	if err != nil || string(name) != "kthreadd\n" {
		t.Log("thread 2 is no kernel thread here; the test machines have it")
		return
	}
	for rung, p := range probes {
		var s Stack
		require.NoError(t, p.Read(2, &s), rung)
		require.True(t, s.KernelThread, rung)
		require.Zero(t, s.Registers.Known, rung)
	}
}

func TestAThreadThatHasEndedIsGone(t *testing.T) {
	for rung, p := range openAll(t) {
		var s Stack
		for _, tid := range []uint32{0, 1<<22 + 1, 1<<31 - 1} { // PID_MAX_LIMIT is 4194304
			require.ErrorIs(t, p.Read(tid, &s), procfs.ErrGone, "%s %d", rung, tid)
		}
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Read(uint32(os.Getpid()), &s), probe.ErrClosed)
	}
	require.ErrorIs(t, Sample(1<<22+1, time.Millisecond, &Stack{}), unix.ESRCH)
}

func TestFireLooksAgain(t *testing.T) {
	for rung, p := range openAll(t) {
		require.NoError(t, p.Fire(t.Context()), rung)
		require.True(t, p.Report().Attempts[0].Fired, rung)
	}
}

func TestAnUnknownRungIsAnError(t *testing.T) {
	_, err := Open(Options{Rung: "ptrace"})
	require.ErrorContains(t, err, `unknown rung "ptrace"`)
}

// made is a proc file system of a test.
func made(t *testing.T, files map[string]string) *procfs.FS {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "43"), 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(root, "43", name), []byte(content), 0o600))
	}
	return procfs.Open(root).WithPatience(hosttest.Patience)
}

func TestProcIsReadWithoutBPF(t *testing.T) {
	const status = "Name:\tpython3\nState:\tD (disk sleep)\nTgid:\t42\nVmSize:\t  1 kB\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n"
	files := map[string]string{
		"status": status, "syscall": "0 0x3 0x7f 0x1000 0x0 0x0 0x0 0x7ffd10 0x7f20\n", "wchan": "rpc_wait_bit_killable",
		"stack": "[<0>] rpc_wait_bit_killable+0x1/0x2 [sunrpc]\n[<0>] nfs4_do_call_sync+0x1/0x2 [nfsv4]\n",
	}
	var s Stack
	require.NoError(t, (&proc{made(t, files), true}).read(43, &s))
	want := Stack{TID: 43, PID: 42, State: 'D', Still: true, Switches: 7, Kernel: []Function{{"rpc_wait_bit_killable", "sunrpc"}, {"nfs4_do_call_sync", "nfsv4"}}}
	want.Registers.set(sp, 0x7ffd10)
	want.Registers.set(pc, 0x7f20)
	require.Equal(t, want, s)
	require.NoError(t, (&proc{made(t, files), false}).read(43, &s))
	require.Equal(t, []Function{{"rpc_wait_bit_killable", ""}}, s.Kernel)
	files["syscall"], files["wchan"] = "running\n", "0"
	require.NoError(t, (&proc{made(t, files), false}).read(43, &s))
	require.Zero(t, s.Registers)
	require.Empty(t, s.Kernel)
	for name, bad := range map[string]string{"status": "Name:\tx\n", "syscall": "0 a b c\n"} {
		files["syscall"] = "running\n"
		before := files[name]
		files[name] = bad
		require.Error(t, (&proc{made(t, files), true}).read(43, &s), name)
		files[name] = before
	}
	fs := made(t, files)
	fs.SetForeign(true)
	require.ErrorIs(t, (&proc{fs, true}).read(43, &s), procfs.ErrForeign)
}

// lying is a source whose threads are elsewhere.
type lying struct{ change func(*Stack) }

func (l lying) read(tid uint32, s *Stack) error {
	if err := (&proc{patient(), false}).read(tid, s); err != nil {
		return err
	}
	s.Kernel = []Function{{"pipe_read", ""}}
	l.change(s)
	return nil
}
func (lying) close() error { return nil }

// TestASourceThatLiesIsNotTaken: each part of a stack is compared.
func TestASourceThatLiesIsNotTaken(t *testing.T) {
	sleeper, err := sleep()
	require.NoError(t, err)
	defer sleeper.wake()
	oracle := lying{func(*Stack) {}}
	var shown Stack
	for deadline := time.Now().Add(hosttest.Patience); ; {
		err := oracle.read(sleeper.tid, &shown)
		if err == nil {
			err = same(&shown, &shown, true)
		}
		if err == nil {
			break
		}
		if errors.Is(err, procfs.ErrDenied) {
			t.Skip("needs root to read /proc/TID/syscall of a test")
		}
		require.True(t, time.Now().Before(deadline), err)
		time.Sleep(time.Millisecond)
	}
	for name, change := range map[string]func(*Stack){
		"program counter": func(s *Stack) { s.Registers.Values[pc]++ },
		"stack pointer":   func(s *Stack) { s.Registers.Values[sp]++ },
		"no registers":    func(s *Stack) { s.Registers = Registers{} },
		"state":           func(s *Stack) { s.State = 'R' },
		"process":         func(s *Stack) { s.PID++ },
		"not still":       func(s *Stack) { s.Still = false },
		"kernel stack":    func(s *Stack) { s.Kernel = nil },
	} {
		s := shown
		change(&s)
		require.Error(t, same(&s, &shown, true), name)
	}
}

func BenchmarkRead(b *testing.B) {
	privtest.Require(b)
	sleeper, err := sleep()
	require.NoError(b, err)
	defer sleeper.wake()
	for _, rung := range Rungs() {
		b.Run(rung, func(b *testing.B) {
			p, err := Open(Options{Rung: rung})
			if err != nil {
				b.Skip(fmt.Sprint(err))
			}
			defer p.Close()
			var s Stack
			for b.Loop() {
				if err := p.Read(sleeper.tid, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("sample", func(b *testing.B) {
		var stop atomic.Bool
		tid := make(chan int)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			spin(&stop)
		}()
		defer stop.Store(true)
		at := uint32(<-tid)
		var s Stack
		for b.Loop() {
			if err := Sample(at, time.Minute, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
