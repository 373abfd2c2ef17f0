//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestMain lets the test binary be the jobs that the tests need.
func TestMain(m *testing.M) {
	if fakejob.IsChild() {
		os.Exit(fakejob.Child())
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, opts Options) *Probe {
	t.Helper()
	privtest.Require(t)
	p, err := Open(opts)
	require.NoError(t, err)
	p.proc.WithPatience(hosttest.Patience)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// install puts a libcuda into a folder of its own: an inode of its own. It has two
// functions unless others are named, since the kernel takes a tenth of a second to
// detach from each.
func install(t testing.TB, functions ...string) string {
	t.Helper()
	if len(functions) == 0 {
		functions = []string{"cuMemAlloc_v2", "cuMemCreate"}
	}
	file, err := fakejob.Install(t.TempDir(), functions...)
	require.NoError(t, err)
	return file
}

// job starts a process on a libcuda; it ends with the test at the latest.
func job(t testing.TB, library string) *fakejob.Job {
	t.Helper()
	j, err := fakejob.Start(library)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() }) // a test may have closed it
	return j
}

func comm(t testing.TB, j *fakejob.Job) string {
	t.Helper()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", j.PID()))
	require.NoError(t, err)
	return strings.TrimSpace(string(name))
}

func processes(jobs ...*fakejob.Job) []probe.Process {
	list := make([]probe.Process, len(jobs))
	for i, j := range jobs {
		list[i] = probe.Process{PID: j.PID()}
	}
	return list
}

// watch has the probe look at jobs, without trouble.
func watch(t testing.TB, p *Probe, jobs ...*fakejob.Job) probe.Watched {
	t.Helper()
	w, err := p.Watch(processes(jobs...))
	require.NoError(t, err)
	require.NoError(t, w.Err)
	return w
}

// next waits for the next event.
func next(t testing.TB, p *Probe) Event {
	t.Helper()
	p.hooks.reader.SetDeadline(time.Now().Add(hosttest.Patience))
	defer p.hooks.reader.SetDeadline(time.Time{})
	var e Event
	require.NoError(t, p.Read(&e))
	return e
}

// nothing checks that no event waits: what the calls before caused is in the ring
// when they return.
func nothing(t testing.TB, p *Probe) {
	t.Helper()
	p.hooks.reader.SetDeadline(time.Now())
	defer p.hooks.reader.SetDeadline(time.Time{})
	var e Event
	require.ErrorIs(t, p.Read(&e), os.ErrDeadlineExceeded, "%+v", e)
}
