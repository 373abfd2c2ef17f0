//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"cmp"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
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

// offset2297 is that of NCCL 2.29.7 for amd64 and arm64 (Debian's libnccl2, 2026-11-22).
const offset2297 = 0x1206d8

// some functions, for tests that need no more: the kernel takes a while to detach from
// each.
func some(more ...string) []string {
	return append([]string{"ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice", "ncclAllReduce", "ncclCommSplit"}, more...)
}

func open(t testing.TB, opts Options) *Probe {
	t.Helper()
	privtest.Require(t)
	opts.MaxStepped = cmp.Or(opts.MaxStepped, 1e12) // on arm64 every call is stepped over, and tests make many
	p, err := Open(opts)
	require.NoError(t, err)
	p.proc.WithPatience(hosttest.Patience)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// start starts a job on a library in a folder of its own: an inode of its own.
func start(t testing.TB, l fakejob.Library) *fakejob.Job {
	t.Helper()
	file, err := l.Install(t.TempDir())
	require.NoError(t, err)
	return join(t, l, file)
}

// join starts another process of a job.
func join(t testing.TB, l fakejob.Library, file string) *fakejob.Job {
	t.Helper()
	j, err := l.Start(file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() }) // a test may have closed it
	return j
}

func watch(t testing.TB, p *Probe, jobs ...*fakejob.Job) Watched {
	t.Helper()
	list := make([]Process, len(jobs))
	for i, j := range jobs {
		list[i] = Process{PID: j.PID()}
	}
	w, err := p.Watch(list)
	require.NoError(t, err)
	require.NoError(t, w.Err)
	return w
}

// scan is where the communicators stand, those of one process by address.
func scan(t testing.TB, p *Probe) *Scan {
	t.Helper()
	s, err := p.Scan()
	require.NoError(t, err)
	return s
}

// only is the one communicator there is.
func only(t testing.TB, p *Probe) Communicator {
	t.Helper()
	s := scan(t, p)
	require.Len(t, s.Communicators, 1)
	return s.Communicators[0]
}

// of finds a communicator of a job by its hash.
func of(t testing.TB, s *Scan, j *fakejob.Job, hash uint64) Communicator {
	t.Helper()
	for _, c := range s.Communicators {
		if c.PID == j.PID() && c.Hash == hash {
			return c
		}
	}
	require.Failf(t, "no communicator", "%#x of %d among %+v", hash, j.PID(), s.Communicators)
	return Communicator{}
}

func plant(comm int, hash uint64, rank, size int32) fakejob.Call {
	return fakejob.Call{Function: "plant", Comm: comm, Planted: fakejob.Communicator{
		Hash: hash, Rank: rank, Size: size, Device: 3, NVMLDevice: 3, Capability: 90, Least: 90, Most: 90, BusID: 0x1b000,
	}}
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

// nothing checks that no event waits.
func nothing(t testing.TB, p *Probe) {
	t.Helper()
	p.hooks.reader.SetDeadline(time.Now())
	defer p.hooks.reader.SetDeadline(time.Time{})
	var e Event
	require.ErrorIs(t, p.Read(&e), os.ErrDeadlineExceeded, "%+v", e)
}

func addressOf(memory []uint64) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) }

func standinBytes(memory []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(memory))), 8*len(memory))
}
