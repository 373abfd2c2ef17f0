//go:build linux && (amd64 || arm64)

package identity

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// BenchmarkProcess is one process from fork to wait, seen and not.
func BenchmarkProcess(b *testing.B) {
	privtest.Require(b)
	run := func(b *testing.B) {
		before := ownCPU(b)
		for b.Loop() {
			c := exec.Command("/proc/self/exe")
			c.Env = append(os.Environ(), "RANK=1", "WORLD_SIZE=2", childMode+"=exit0")
			require.NoError(b, c.Run())
		}
		b.ReportMetric(float64(ownCPU(b)-before)/float64(b.N), "own-cpu-ns/op")
	}
	b.Run("unseen", run)
	b.Run("seen", func(b *testing.B) {
		tracker := openTracker(b, Options{Rung: RungTracing})
		run(b)
		require.Zero(b, tracker.Stats().Dropped)
	})
}

// BenchmarkThreadExit is a thread's whole life, whose end the hook looks at and
// passes over.
func BenchmarkThreadExit(b *testing.B) {
	privtest.Require(b)
	run := func(b *testing.B) {
		for b.Loop() {
			done := make(chan struct{})
			go func() { runtime.LockOSThread(); close(done) }() // ends its thread
			<-done
		}
	}
	b.Run("unseen", run)
	b.Run("seen", func(b *testing.B) {
		openTracker(b, Options{Rung: RungTracing})
		run(b)
	})
}

func BenchmarkHandle(b *testing.B) {
	opts, err := Options{}.withDefaults()
	require.NoError(b, err)
	tracker := newTracker(opts, newScript(), newReader("/proc"), probe.Report{})
	now := bootNow()
	for range 2 { // itself and its parent
		tracker.scan()
	}
	self := uint32(os.Getpid())
	st, err := tracker.proc.Stat(self)
	require.NoError(b, err)
	environ := block(append(os.Environ(), rank3()...)...)
	b.Run("exec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tracker.handle(&event{kind: kindExec, pid: self, parentPID: st.ParentPID, startNS: st.StartNS(), timeNS: now, comm: "x", environ: environ, whole: true})
		}
	})
	b.Run("exit", func(b *testing.B) {
		b.ReportAllocs()
		pid := uint32(1 << 22)
		for b.Loop() {
			pid++
			tracker.handle(&event{kind: kindExit, pid: pid, parentPID: st.ParentPID, startNS: now, timeNS: now, comm: "x"})
		}
	})
	b.Run("lookup", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tracker.Lookup(self, 0, time.Time{})
		}
	})
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			tracker.scan()
		}
		b.ReportMetric(float64(tracker.Counters().Processes), "processes")
	})
}

// ownCPU is the processor time of this process without its children.
func ownCPU(b *testing.B) int64 {
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkMemory fills the table with processes that differ.
func BenchmarkMemory(b *testing.B) {
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		table := newTable(DefaultMaxProcesses, DefaultRetention)
		for i := range uint32(DefaultMaxProcesses) {
			r, _ := derive(facts{pid: i + 1, startNS: uint64(i) * 1e7, comm: "python3", launch: noLaunch(), membership: parseCgroup(
				"0::/kubepods.slice/kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope\n")}, nil)
			table.put(r, 1)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/DefaultMaxProcesses, "bytes/process")
		runtime.KeepAlive(table)
	}
}
