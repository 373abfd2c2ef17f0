//go:build linux && (amd64 || arm64)

package fusefault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestMain lets the test binary be the processes that the tests need.
func TestMain(m *testing.M) {
	if IsDrillChild() {
		os.Exit(DrillChild())
	}
	if os.Getenv(roleVariable) == "drill" {
		os.Exit(drillForever())
	}
	goleak.VerifyTestMain(m)
}

// roleVariable makes the test binary play "drill": one that never ends by itself.
const roleVariable = "TRACECORE_FUSEFAULT_TEST_ROLE"

func drillForever() int {
	d, err := StartDrill(DrillOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(d.Device.Minor)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

// drilling is the test binary as a drill.
type drilling struct {
	cmd   *exec.Cmd
	minor uint32
}

func startDrilling(t *testing.T) *drilling {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	d := &drilling{cmd: exec.Command(self)}
	d.cmd.Env = []string{roleVariable + "=drill"}
	d.cmd.Stderr = os.Stderr
	stdin, err := d.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		_ = stdin.Close()
	})
	_, err = fmt.Fscan(stdout, &d.minor)
	require.NoError(t, err)
	return d
}

// open opens the probe; ok is false where this kernel has not the rung.
func tryOpen(t testing.TB, opts Options) (p *Probe, ok bool) {
	t.Helper()
	privtest.Require(t)
	p, err := Open(opts)
	var none *ladder.NoRung
	if opts.Rung != "" && errors.As(err, &none) {
		attempt := none.Report.Attempts[0]
		require.Contains(t, []probe.Outcome{probe.Denied, probe.Unsupported}, attempt.Outcome, attempt.Reason)
		t.Logf("this kernel has not the rung %s: %s", opts.Rung, attempt.Reason)
		return nil, false
	}
	require.NoError(t, err)
	p.proc.WithPatience(hosttest.Patience)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p, true
}

func open(t testing.TB, opts Options) *Probe {
	t.Helper()
	p, ok := tryOpen(t, opts)
	require.True(t, ok)
	return p
}

func mount(t testing.TB, opts hangfs.Options) *hangfs.FS {
	t.Helper()
	f, err := hangfs.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func visit(t testing.TB, f *hangfs.FS, accesses ...hangfs.Access) *hangfs.Visitor {
	t.Helper()
	v, err := f.Visit(hangfs.Visit{Accesses: accesses})
	require.NoError(t, err)
	return v
}

func deviceOf(f *hangfs.FS) Device {
	major, minor := f.Device()
	return Device{major, minor}
}

// pace of the looks at what is waited for; a look takes longer than that there.
const pace = 20 * time.Millisecond

// until takes snapshots until one is as wanted, and returns what it shows of one
// file system.
func until(t testing.TB, p *Probe, f *hangfs.FS, wanted func(inFlight []InFlight, m Mount) bool) ([]InFlight, Mount) {
	t.Helper()
	var mine []InFlight
	var m Mount
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for end := time.Now().Add(hosttest.Patience); ; <-ticker.C {
		mine, m = look(t, p, f)
		if wanted(mine, m) {
			return mine, m
		}
		if time.Now().After(end) {
			require.Failf(t, "not seen", "%d waiters: %d faults, %d requests, %d all told; the first: %v",
				len(waiters(mine)), len(of(mine, KindFault)), len(of(mine, KindRequest)), len(mine), mine[:min(len(mine), 5)])
		}
	}
}

// look takes one snapshot.
func look(t testing.TB, p *Probe, f *hangfs.FS) (mine []InFlight, m Mount) {
	t.Helper()
	var s Snapshot
	require.NoError(t, p.Snapshot(&s))
	for _, i := range s.InFlight {
		if i.Device == deviceOf(f) {
			mine = append(mine, i)
		}
	}
	for _, one := range s.Mounts {
		if one.Device == deviceOf(f) {
			m = one
		}
	}
	return mine, m
}

// waiters are the threads that wait, each counted once.
func waiters(inFlight []InFlight) map[uint32]bool {
	threads := make(map[uint32]bool)
	for _, i := range inFlight {
		if !i.Background {
			threads[i.TID] = true
		}
	}
	return threads
}

func of(inFlight []InFlight, kind Kind) []InFlight {
	var some []InFlight
	for _, i := range inFlight {
		if i.Kind == kind && !i.Background {
			some = append(some, i)
		}
	}
	return some
}
