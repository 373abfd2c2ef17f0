//go:build linux && (amd64 || arm64)

package fusefault

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// young shows what hangs as soon as it does.
var young = Options{MinAge: 20 * time.Millisecond}

func gone(inFlight []InFlight, m Mount) bool { return len(inFlight) == 0 && m.InFlight == 0 }

// hang starts accesses on a daemon that answers no more and waits until n threads
// are seen to wait.
func hang(t *testing.T, p *Probe, f *hangfs.FS, n int, accesses ...hangfs.Access) (*hangfs.Visitor, []InFlight, Mount) {
	t.Helper()
	v := visit(t, f, accesses...)
	require.NoError(t, f.Freeze())
	require.NoError(t, v.Go())
	seen, m := until(t, p, f, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == n })
	return v, seen, m
}

func TestWhatHangsIsSeenWhileItHangsAndNotAfter(t *testing.T) {
	p := open(t, young)
	whole := t // mounts last as long as the probe: each has a device number of its own
	for name, want := range map[string]struct {
		access hangfs.Access
		kind   Kind
		opcode uint32
	}{
		"fault":                  {hangfs.Access{How: hangfs.Fault, File: hangfs.Cached}, KindFault, 0},
		"fault in a system call": {hangfs.Access{How: hangfs.Copy, File: hangfs.Cached}, KindFault, 0},
		"direct read":            {hangfs.Access{How: hangfs.Read, File: hangfs.Direct}, KindRequest, opRead},
		"buffered read":          {hangfs.Access{How: hangfs.Read, File: hangfs.Cached}, KindRequest, opRead},
		"stat":                   {hangfs.Access{How: hangfs.Stat, File: hangfs.Cached}, KindRequest, 0},
		"write":                  {hangfs.Access{How: hangfs.Write, File: hangfs.Direct}, KindRequest, 0},
		"fsync":                  {hangfs.Access{How: hangfs.Fsync, File: hangfs.Cached}, KindRequest, opFsync},
	} {
		t.Run(name, func(t *testing.T) {
			f := mount(whole, hangfs.Options{})
			before := time.Now()
			v, seen, m := hang(t, p, f, 1, want.access)
			mine := of(seen, want.kind)
			require.Len(t, mine, 1, "%v", seen)
			require.EqualValues(t, v.PID(), mine[0].PID)
			require.NotZero(t, mine[0].TID)
			require.NotEmpty(t, mine[0].Comm)
			require.WithinRange(t, mine[0].Start, before.Add(-time.Second), time.Now())
			if want.opcode != 0 || want.kind == KindFault {
				require.Equal(t, want.opcode, mine[0].Opcode)
			}
			require.NotZero(t, mine[0].Inode)
			require.GreaterOrEqual(t, m.InFlight, 1)
			require.EqualValues(t, f.PID(), m.DaemonPID)
			require.Equal(t, "hangfs", m.DaemonComm)

			again, _ := until(t, p, f, func(all []InFlight, _ Mount) bool { return len(of(all, want.kind)) == 1 })
			require.Equal(t, mine[0].ID, of(again, want.kind)[0].ID)
			require.WithinDuration(t, mine[0].Start, of(again, want.kind)[0].Start, time.Second)

			require.NoError(t, f.Thaw())
			require.NoError(t, v.Wait(t.Context()))
			until(t, p, f, gone)
		})
	}
}

// However the daemon stops answering, and however that ends.
func TestEndsOfAStall(t *testing.T) {
	p := open(t, young)
	whole := t // mounts last as long as the probe: each has a device number of its own
	for name, step := range map[string]struct {
		hold, release func(*hangfs.FS) error
		aborts        bool
	}{
		"daemon is stopped and continued": {(*hangfs.FS).Stop, (*hangfs.FS).Continue, false},
		"daemon is killed":                {(*hangfs.FS).Freeze, (*hangfs.FS).Kill, true},
		"daemon is stopped, then killed":  {(*hangfs.FS).Stop, (*hangfs.FS).Kill, true},
		"mount is taken away with force":  {(*hangfs.FS).Freeze, (*hangfs.FS).Abort, true},
		"stopped, mount taken away":       {(*hangfs.FS).Stop, (*hangfs.FS).Abort, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := mount(whole, hangfs.Options{})
			v := visit(t, f, hangfs.Access{How: hangfs.Read, File: hangfs.Direct}, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached},
				hangfs.Access{How: hangfs.Read, File: hangfs.Cached + "2"})
			require.NoError(t, step.hold(f))
			require.NoError(t, v.Go())
			until(t, p, f, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == 3 })
			require.NoError(t, step.release(f))
			require.NoError(t, v.Wait(t.Context()))
			_, m := until(t, p, f, gone)
			require.Equal(t, step.aborts, m.Aborted > 0, "%d aborted", m.Aborted)
		})
	}
}

// A request that the daemon has not taken is freed without an end when its thread is
// killed.
func TestKilledWaitersEnd(t *testing.T) {
	p := open(t, young)
	f := mount(t, hangfs.Options{})
	v := visit(t, f, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: 4}, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: 4})
	require.NoError(t, f.Stop())
	require.NoError(t, v.Go())
	until(t, p, f, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == 8 })
	require.NoError(t, v.Kill())
	// What is left is its end: the FLUSH of each file it had open, which no signal ends.
	const flush = 25
	until(t, p, f, func(all []InFlight, _ Mount) bool {
		return !slices.ContainsFunc(all, func(i InFlight) bool { return i.Opcode != flush && !i.Background })
	})
	require.NoError(t, f.Continue())
	<-v.Gone()
	until(t, p, f, gone)
	_, left, err := readAll[uint64, bpfRequest](p.hooks, tableRequests, &buffers{}, nil, nil)
	require.NoError(t, err)
	for _, r := range left {
		require.False(t, r.Device == deviceOf(f).number() && r.EndedNs == 0, "a request of a dead thread is kept: %v", r)
	}
}

func TestAThousandWaitersAreAllCounted(t *testing.T) {
	tenth := hosttest.Size(100, 20)
	for name, accesses := range map[string][]hangfs.Access{
		"faults": {
			{How: hangfs.Fault, File: hangfs.Cached, Threads: 5 * tenth},
			{How: hangfs.Fault, File: hangfs.Cached + "2", Threads: 5 * tenth, SamePage: true},
		},
		"requests": {
			{How: hangfs.Read, File: hangfs.Direct, Threads: 3 * tenth}, {How: hangfs.Stat, File: hangfs.Cached, Threads: 3 * tenth},
			{How: hangfs.Read, File: hangfs.Cached, Threads: 4 * tenth},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, young)
			f := mount(t, hangfs.Options{})
			v := visit(t, f, accesses...)
			require.NoError(t, f.Freeze())
			require.NoError(t, v.Go())
			// On a kernel that preempts within a program a few may be missed, and are counted.
			until(t, p, f, func(all []InFlight, _ Mount) bool {
				return len(waiters(all))+min(int(p.Stats().Dropped), tenth/2) >= 10*tenth
			})
			require.NoError(t, f.Thaw())
			require.NoError(t, v.Wait(t.Context()))
			until(t, p, f, gone)
		})
	}
}

func TestSlowButAliveIsNoStallAndIsMeasured(t *testing.T) {
	p := open(t, Options{MinAge: hosttest.Patience})
	f := mount(t, hangfs.Options{})
	v := visit(t, f, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: 20}, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: 20})
	// All are counted: 65 ms and longer, whatever jiffies lose on a busy machine.
	require.NoError(t, f.Delay(time.Duration(coarse)+70*time.Millisecond))
	require.NoError(t, v.Go())
	require.NoError(t, v.Wait(t.Context()))
	seen, m := until(t, p, f, func(_ []InFlight, m Mount) bool { return m.InFlight == 0 && sum(m.Faults) > 0 })
	require.Empty(t, seen)
	for i := range 2 { // less than 2 µs
		require.Zero(t, m.Requests.Buckets[i])
	}
	slow := uint64(0)
	for i := 17; i < len(m.Requests.Buckets); i++ { // at least 65 ms
		slow += m.Requests.Buckets[i]
	}
	require.GreaterOrEqual(t, slow+p.Stats().Dropped, uint64(40))
	require.GreaterOrEqual(t, m.Answered, slow)
	require.GreaterOrEqual(t, m.Requests.SumNS, slow*uint64(1<<16*time.Microsecond))
	require.LessOrEqual(t, sum(m.Faults), uint64(20+5), "the visitor's own")
	require.GreaterOrEqual(t, m.Faults.SumNS, sum(m.Faults)*uint64(70*time.Millisecond))
}

// Where the kernel preempts programs, the daemon's threads answer beside one of them that
// is preempted. An end that nobody saw would leave its request in flight until it is old.
func TestEveryEndOfACrowdIsSeen(t *testing.T) {
	p := open(t, Options{MinAge: hosttest.Patience})
	f := mount(t, hangfs.Options{})
	const threads = 200
	rounds := hosttest.Size(10, 5)
	for range rounds {
		v := visit(t, f, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: threads})
		require.NoError(t, f.Freeze())
		require.NoError(t, v.Go())
		until(t, p, f, func(_ []InFlight, m Mount) bool { return m.InFlight+int(p.Stats().Dropped) >= threads })
		busy, idle := context.WithCancel(t.Context())
		for range runtime.NumCPU() { // so that the kernel preempts while ends come
			go func() {
				for busy.Err() == nil {
				}
			}()
		}
		require.NoError(t, f.Thaw())
		err := v.Wait(t.Context())
		idle()
		require.NoError(t, err)
	}
	// Each thread asks twice: to read and to close. What one of the programs missed is no
	// loss; what all missed is still in flight, and is no answer.
	_, m := until(t, p, f, func(_ []InFlight, m Mount) bool { return m.InFlight <= int(p.Stats().Dropped) })
	require.GreaterOrEqual(t, m.Answered+uint64(rounds), uint64(2*rounds*threads))
}

// Of requests that are answered quickly one in sixteen is timed, and stands for sixteen.
func TestQuickRequestsAreCountedAndSomeAreTimed(t *testing.T) {
	p := open(t, Options{})
	f := mount(t, hangfs.Options{})
	path := f.Path(hangfs.Cached)
	ask := func(times uint64) {
		var st unix.Statx_t
		for range times {
			require.NoError(t, unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
		}
	}
	ask(1)
	_, before := until(t, p, f, func(_ []InFlight, m Mount) bool { return m.Answered > 0 && m.InFlight == 0 })
	times := uint64(hosttest.Size(8000, 500))
	ask(times)
	_, m := until(t, p, f, func(_ []InFlight, m Mount) bool { return m.InFlight == 0 && m.Answered >= before.Answered+times })
	require.LessOrEqual(t, m.Answered, before.Answered+times+times/10, "no more than were asked, and what a path costs")
	counted := sum(m.Requests) - sum(before.Requests)
	require.Greater(t, counted, times/2)
	require.Less(t, counted, 2*times)
}

// What an entry counted outlives it.
func TestForgottenEntriesStayCounted(t *testing.T) {
	p := open(t, Options{})
	f := mount(t, hangfs.Options{})
	var st unix.Statx_t
	require.NoError(t, unix.Statx(unix.AT_FDCWD, f.Path(hangfs.Cached), unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
	_, before := until(t, p, f, func(_ []InFlight, m Mount) bool { return m.Answered > 0 && m.InFlight == 0 })
	keys, entries, err := readAll[uint64, bpfRequest](p.hooks, tableRequests, &buffers{}, nil, nil)
	require.NoError(t, err)
	var ended []request
	for i, key := range keys {
		if entries[i].EndedNs != 0 {
			ended = append(ended, request{key, entries[i]})
		}
	}
	require.NotEmpty(t, ended)
	require.NoError(t, p.forget(verdicts{}, ended))
	_, after := until(t, p, f, func([]InFlight, Mount) bool { return true })
	require.Equal(t, before.Answered, after.Answered)
	require.Equal(t, before.Requests, after.Requests)
}

func sum(h Histogram) uint64 {
	var n uint64
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

func TestMountInAnotherMountNamespaceIsSeen(t *testing.T) {
	p := open(t, young)
	f := mount(t, hangfs.Options{Private: true})
	v, seen, m := hang(t, p, f, 2, hangs()...)
	require.Len(t, of(seen, KindFault), 1)
	require.EqualValues(t, v.PID(), of(seen, KindFault)[0].PID)
	require.EqualValues(t, f.PID(), m.DaemonPID)
}

// Faults on another file system wait for a disk now and then, and are not ours.
func TestFaultsOnOtherFileSystemsAreIgnored(t *testing.T) {
	p := open(t, Options{MinAge: time.Nanosecond})
	for _, dir := range []string{t.TempDir(), "/dev/shm", "/var/tmp"} {
		path := filepath.Join(dir, "fusefault-test")
		file, err := os.Create(path)
		if err != nil { // not mounted here
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.Remove(path)) })
		require.NoError(t, file.Truncate(1<<20))
		memory, err := unix.Mmap(int(file.Fd()), 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i]++
		}
		require.NoError(t, unix.Munmap(memory))
		require.NoError(t, file.Close())
	}
	keys, _, err := readAll[uint32, bpfFault](p.hooks, tableFaults, &buffers{}, nil, nil)
	require.NoError(t, err)
	require.NotContains(t, keys, uint32(unix.Gettid()))
	for _, tid := range keys {
		require.NoDirExists(t, filepath.Join("/proc/self/task", strconv.Itoa(int(tid))))
	}
}

func TestAFullMapCountsWhatItMissed(t *testing.T) {
	p := open(t, Options{MinAge: young.MinAge, MaxInFlight: 16})
	f := mount(t, hangfs.Options{})
	v := visit(t, f, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: 40}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: 40})
	require.NoError(t, f.Freeze())
	require.NoError(t, v.Go())
	var s Snapshot
	require.Eventually(t, func() bool {
		require.NoError(t, p.Snapshot(&s))
		// Threads may be on their way into the map between the two readings.
		return s.Missed >= 2*(40-16) && len(s.InFlight) > 16 && s.Missed == p.Stats().Dropped
	}, hosttest.Patience, pace, "%v", &s)
	require.NoError(t, f.Thaw())
	require.NoError(t, v.Wait(t.Context()))
	until(t, p, f, gone)
	missed := p.Stats().Dropped
	require.NoError(t, p.Close())
	require.Equal(t, missed, p.Stats().Dropped, "counters outlive the probe")
}

// The daemon never answered while the probe was open.
func TestDaemonIsFoundByWhatItHasOpen(t *testing.T) {
	privtest.Require(t)
	f := mount(t, hangfs.Options{})
	v := visit(t, f, hangfs.Access{How: hangfs.Read, File: hangfs.Direct})
	require.NoError(t, f.Stop())
	p := open(t, young)
	require.NoError(t, v.Go())
	_, m := until(t, p, f, func(all []InFlight, _ Mount) bool { return len(waiters(all)) == 1 })
	require.EqualValues(t, f.PID(), m.DaemonPID)
	require.Equal(t, "hangfs", m.DaemonComm)
	require.Zero(t, sum(m.Requests))
	require.NoError(t, f.Continue())
}

// A device number is used again, as a rule at once. Nobody is taken for the daemon who was that
// of an earlier mount, while the one of now is not looked for yet.
func TestADeviceNumberThatIsUsedAgainHasAnotherDaemon(t *testing.T) {
	p := open(t, young)
	f := mount(t, hangfs.Options{})
	v, _, m := hang(t, p, f, 1, hangfs.Access{How: hangfs.Read, File: hangfs.Direct})
	require.EqualValues(t, f.PID(), m.DaemonPID)

	var entry bpfMount
	key := deviceOf(f).number()
	require.NoError(t, p.hooks.maps.Mounts.Lookup(key, &entry))
	entry.Connection++
	entry.Daemon = 4 << 20 // PID_MAX_LIMIT, include/linux/threads.h: nobody's
	require.NoError(t, p.hooks.maps.Mounts.Put(key, &entry))
	holders := p.hooks.holders
	p.hooks.holders = nil
	_, m = look(t, p, f)
	require.Equal(t, []any{uint32(0), ""}, []any{m.DaemonPID, m.DaemonComm})
	p.hooks.holders = holders
	_, m = look(t, p, f)
	require.Equal(t, []any{uint32(f.PID()), "hangfs"}, []any{m.DaemonPID, m.DaemonComm})
	require.NoError(t, f.Thaw())
	require.NoError(t, v.Wait(t.Context()))
}

// A kernel that lets no program walk over maps shows their entries by bpf(2).
func TestMapsAreReadAlsoWithoutIterators(t *testing.T) {
	p := open(t, Options{})
	f := mount(t, hangfs.Options{})
	var st unix.Statx_t
	require.NoError(t, unix.Statx(unix.AT_FDCWD, f.Path(hangfs.Cached), unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
	keys, entries, err := lookUpAll[uint64, bpfRequest](p.hooks.table(tableRequests), nil, nil)
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	require.Len(t, entries, len(keys))
	var walked []uint64
	walked, _, err = readAll[uint64, bpfRequest](p.hooks, tableRequests, &buffers{}, nil, nil)
	require.NoError(t, err)
	require.Subset(t, walked, keys)
	for i := range p.hooks.entries {
		if p.hooks.entries[i] != nil {
			require.NoError(t, p.hooks.entries[i].Close())
			p.hooks.entries[i] = nil
		}
	}
	until(t, p, f, func(_ []InFlight, m Mount) bool { return m.Answered > 0 && m.InFlight == 0 })
}

func TestAllEntriesOfAMapAreLookedUp(t *testing.T) {
	const entries = 5000
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: entries})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	want := map[uint64]uint32{}
	for i := range uint32(entries) {
		want[uint64(i)<<20] = i
		require.NoError(t, m.Put(uint64(i)<<20, i))
	}
	keys, values, err := lookUpAll(m, []uint64(nil), []uint32(nil))
	require.NoError(t, err)
	require.Len(t, keys, entries)
	got := map[uint64]uint32{}
	for i, key := range keys {
		got[key] = values[i]
	}
	require.Equal(t, want, got)
}
