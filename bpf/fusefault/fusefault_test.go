//go:build linux && (amd64 || arm64)

package fusefault

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

func TestEachRungSeesADrill(t *testing.T) {
	privtest.Require(t)
	worked := 0
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, ok := tryOpen(t, Options{Rung: rung})
			if !ok {
				return
			}
			require.NoError(t, p.Fire(t.Context()))
			require.Equal(t, probe.Report{
				Probe: Name, Rung: rung,
				Attempts: []probe.Attempt{{Rung: rung, Outcome: probe.OK, Fired: true}},
			}, p.Report())
			requireHistograms(t, p)
			worked++
		})
	}
	require.Positive(t, worked)
}

// requireHistograms: what Fire made was also measured when it ended.
func requireHistograms(t *testing.T, p *Probe) {
	t.Helper()
	require.Eventually(t, func() bool {
		var s Snapshot
		require.NoError(t, p.Snapshot(&s))
		var requests, faults uint64
		for _, m := range s.Mounts {
			requests += sum(m.Requests)
			faults += sum(m.Faults)
		}
		return requests > 0 && faults > 0
	}, hosttest.Patience, pace)
}

func TestWithoutAChoiceTheBestRungIsTakenAndTheBetterOnesAreExplained(t *testing.T) {
	privtest.Require(t)
	p, first, err := Try(Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	require.NotEmpty(t, first.Rung)
	require.NoError(t, p.Fire(t.Context()))
	report := p.Report()
	last := len(report.Attempts) - 1
	require.Equal(t, probe.Attempt{Rung: report.Rung, Outcome: probe.OK, Fired: true}, report.Attempts[last])
	for _, better := range report.Attempts[:last] {
		require.Contains(t, []probe.Outcome{probe.Denied, probe.Unsupported}, better.Outcome, better.Reason)
		require.NotEmpty(t, better.Reason)
	}
}

func TestUnknownRungIsRefusedWithTheKnownOnes(t *testing.T) {
	_, err := Open(Options{Rung: "uprobe/malloc"})
	require.ErrorContains(t, err, "use one of "+strings.Join(Rungs(), ", "))
}

func TestFireEndsWithItsContext(t *testing.T) {
	p := open(t, Options{})
	before := p.Report()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Fire(ctx), context.Canceled)
	require.Equal(t, before, p.Report(), "a drill that could not be made says nothing of the rung")
}

func TestSnapshotAfterCloseSaysSo(t *testing.T) {
	p := open(t, Options{})
	var s Snapshot
	require.NoError(t, p.Snapshot(&s))
	require.NotZero(t, s.Time)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Snapshot(&s), probe.ErrClosed)
	require.EqualValues(t, 1, p.Stats().Events)
}

func TestCloseBesideSnapshots(t *testing.T) {
	p := open(t, Options{})
	var wg sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range 4 {
		wg.Go(func() {
			var s Snapshot
			for first := true; p.Snapshot(&s) == nil; first = false {
				if first {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		<-begun
	}
	require.NoError(t, p.Close())
	wg.Wait()
}

// A kernel whose module fuse is not loaded yet.
func TestProbeThatWaitsForFUSEAttachesInASnapshot(t *testing.T) {
	privtest.Require(t)
	p := &Probe{opts: young, proc: procfs.Open("").WithPatience(hosttest.Patience), report: asleep(), sightings: sightings{}}
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	require.Empty(t, p.Report().Rung)
	require.Zero(t, p.Stats())
	require.NoError(t, p.Fire(t.Context()))
	require.NotEmpty(t, p.Report().Rung)

	unloaded := &Probe{opts: young, report: asleep()}
	require.NoError(t, unloaded.Close())
	require.NoError(t, unloaded.Close())
	require.ErrorIs(t, unloaded.Snapshot(&Snapshot{}), probe.ErrClosed)
}

func TestLostPrivilegesAreDenied(t *testing.T) {
	privtest.Require(t)
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its lost capabilities
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			errs <- err
			return
		}
		_, err := Open(Options{})
		errs <- err
	}()
	err := <-errs
	var noRung *ladder.NoRung
	require.ErrorAs(t, err, &noRung)
	denied := 0
	for _, attempt := range noRung.Report.Attempts {
		require.Contains(t, []probe.Outcome{probe.Denied, probe.Unsupported}, attempt.Outcome, attempt.Reason)
		if attempt.Outcome == probe.Denied {
			denied++
		}
	}
	require.Positive(t, denied)
}

func TestDrillIsSeenReleasedAndGone(t *testing.T) {
	p := open(t, young)
	d, err := StartDrill(DrillOptions{Env: []string{"RANK=3", "WORLD_SIZE=8"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(int(d.VictimPID)) + "/environ")
	require.NoError(t, err)
	require.Contains(t, string(environ), "RANK=3\x00WORLD_SIZE=8\x00")

	seen, m := until(t, p, d.fs, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == 2 })
	require.Len(t, of(seen, KindFault), 1)
	for _, i := range seen {
		require.Equal(t, d.VictimPID, i.PID)
		require.Equal(t, d.Device, i.Device)
	}
	require.Equal(t, d.DaemonPID, m.DaemonPID)
	require.NoError(t, d.Release())
	until(t, p, d.fs, gone)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	for _, pid := range []uint32{d.VictimPID, d.DaemonPID} {
		require.ErrorIs(t, unix.Kill(int(pid), 0), unix.ESRCH)
	}
	require.NoDirExists(t, d.MountPoint)
}

// A drill that is killed leaves it to the kernel to take everything away.
func TestDrillOfAKilledProcessLeavesNoProcess(t *testing.T) {
	p := open(t, young)
	d := startDrilling(t)
	var s Snapshot
	see := func(wanted func(n int) bool) {
		require.Eventually(t, func() bool {
			require.NoError(t, p.Snapshot(&s))
			n := 0
			for _, i := range s.InFlight {
				if i.Device == (Device{0, d.minor}) {
					n++
				}
			}
			return wanted(n)
		}, hosttest.Patience, pace, "%v", &s)
	}
	see(func(n int) bool { return n >= 2 })
	require.NoError(t, d.cmd.Process.Kill())
	see(func(n int) bool { return n == 0 })
	left, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("hangfs-%d-*", d.cmd.Process.Pid)))
	require.NoError(t, err)
	for _, dir := range left { // empty, and swept by a later drill
		require.NoError(t, os.Remove(dir))
	}
}

func BenchmarkOpen(b *testing.B) {
	privtest.Require(b)
	cpu := processorTime(b)
	for b.Loop() {
		p, err := Open(Options{})
		require.NoError(b, err)
		require.NoError(b, p.Close())
	}
	b.ReportMetric(float64(processorTime(b)-cpu)/float64(b.N), "cpu-ns/op")
}

// processorTime is what this process has used, whatever else the machine does.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkSnapshot with nothing in flight, and with a thousand waiters.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{0, 1000} {
		b.Run(strconv.Itoa(n)+" waiters", func(b *testing.B) {
			p := open(b, young)
			f := mount(b, hangfs.Options{})
			if n > 0 {
				v := visit(b, f, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: n / 2}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: n / 2})
				require.NoError(b, f.Freeze())
				require.NoError(b, v.Go())
				until(b, p, f, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == n })
			}
			var s Snapshot
			cpu := processorTime(b)
			for b.Loop() {
				if err := p.Snapshot(&s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkSearch for what threads wait for, among all threads of this machine.
func BenchmarkSearch(b *testing.B) {
	p := open(b, young)
	cpu := processorTime(b)
	for b.Loop() {
		if _, err := run(p.hooks.overlooked.Open()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-cpu)/float64(b.N), "cpu-ns/op")
	all, err := filepath.Glob("/proc/[0-9]*/task/*")
	require.NoError(b, err)
	b.ReportMetric(float64(len(all)), "threads")
}
