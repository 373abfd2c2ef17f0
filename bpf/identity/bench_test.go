//go:build linux && (amd64 || arm64)

package identity

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
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
		tracker := openTracker(b, Options{Rung: RungSignals})
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
		openTracker(b, Options{Rung: RungSignals})
		run(b)
	})
}

// BenchmarkSignal is one signal from kill(2) to its handler: one that nothing is noted of
// (SIGWINCH), and one that ends a process that does not handle it.
func BenchmarkSignal(b *testing.B) {
	privtest.Require(b)
	send := func(number unix.Signal) func(b *testing.B) {
		return func(b *testing.B) {
			got := make(chan os.Signal, 1)
			signal.Notify(got, number)
			defer signal.Stop(got)
			for b.Loop() {
				require.NoError(b, unix.Kill(os.Getpid(), number))
				<-got
			}
		}
	}
	for name, number := range map[string]unix.Signal{"other": unix.SIGWINCH, "ending": unix.SIGTERM} {
		b.Run(name+"/unseen", send(number))
		b.Run(name+"/seen", func(b *testing.B) {
			stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
			require.NoError(b, err)
			defer stats.Close()
			openTracker(b, Options{Rung: RungSignals})
			send(number)(b)
			b.ReportMetric(kernelCost(b, bpfProgSignalSent), "kernel-ns/signal")
		})
	}
}

// kernelCost is the mean time of the newest program of that name: of all signals of the machine.
func kernelCost(b *testing.B, name string) (mean float64) {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return mean
		}
		id = next
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := program.Info()
		require.NoError(b, err)
		stats, err := program.Stats()
		require.NoError(b, err)
		require.NoError(b, program.Close())
		if info.Name == name && stats.RunCount > 0 {
			mean = float64(stats.Runtime.Nanoseconds()) / float64(stats.RunCount)
		}
	}
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
			r, _ := derive(facts{pid: i + 1, startNS: uint64(i) * 1e7, comm: "python3", launch: noLaunch(), home: home{membership: procfs.ParseCgroup(
				"0::/kubepods.slice/kubepods-pod" + uidUnderscore + ".slice/cri-containerd-" + idA + ".scope\n")}}, nil)
			table.put(r, 1)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/DefaultMaxProcesses, "bytes/process")
		runtime.KeepAlive(table)
	}
}
