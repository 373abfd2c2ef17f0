//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

const gib = 1 << 30

func TestOpenFiresItsRung(t *testing.T) {
	p := open(t, Options{})
	require.Equal(t, probe.Report{
		Probe: Name, Rung: RungUprobe,
		Attempts: []probe.Attempt{{Rung: RungUprobe, Outcome: probe.OK, Fired: true}},
	}, p.Report())
	require.Equal(t, probe.Stats{}, p.Stats())
	nothing(t, p)
}

func TestUnknownRungIsAnError(t *testing.T) {
	_, err := Open(Options{Rung: "kprobe/nvidia"})
	require.ErrorContains(t, err, RungUprobe)
}

// Each function, as a cause and the event it must make.
func TestRefusalOfEachFunctionIsReported(t *testing.T) {
	p := open(t, Options{})
	j := job(t, install(t, fakejob.Functions()...))
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, j))
	for _, tc := range []struct {
		call   fakejob.Call
		name   string
		size   uint64
		device int32
	}{
		{fakejob.Malloc(3*gib, fakejob.OutOfMemory), "cuMemAlloc", 3 * gib, DeviceUnknown},
		{fakejob.Call{Function: "cuMemAllocPitch_v2", Size: 1 << 20, Rows: 4096, Result: fakejob.OutOfMemory}, "cuMemAllocPitch", 4 * gib, DeviceUnknown},
		{fakejob.Call{Function: "cuMemAllocManaged", Size: 5, Result: fakejob.OutOfMemory}, "cuMemAllocManaged", 5, DeviceUnknown},
		{fakejob.Call{Function: "cuMemAllocAsync", Size: 6, Result: fakejob.OutOfMemory}, "cuMemAllocAsync", 6, DeviceUnknown},
		{fakejob.Call{Function: "cuMemAllocAsync_ptsz", Size: 7, Result: fakejob.OutOfMemory}, "cuMemAllocAsync", 7, DeviceUnknown},
		{fakejob.Call{Function: "cuMemAllocFromPoolAsync", Size: 8, Result: fakejob.OutOfMemory}, "cuMemAllocFromPoolAsync", 8, DeviceUnknown},
		{fakejob.Call{Function: "cuMemAllocFromPoolAsync_ptsz", Size: 9, Result: fakejob.OutOfMemory}, "cuMemAllocFromPoolAsync", 9, DeviceUnknown},
		{fakejob.Create(20<<20, 3, fakejob.OutOfMemory), "cuMemCreate", 20 << 20, 3},
		{fakejob.Call{Function: "cuMemCreate", Size: 10, Prop: &fakejob.Prop{LocationType: 3, LocationID: 1}, Result: fakejob.OutOfMemory}, "cuMemCreate", 10, DeviceUnknown},
		{fakejob.Call{Function: "cuMemCreate", Size: 11, Result: fakejob.OutOfMemory}, "cuMemCreate", 11, DeviceUnknown},
	} {
		before := time.Now()
		require.NoError(t, j.Do(tc.call))
		e := next(t, p)
		require.WithinRange(t, e.Time, before.Add(-time.Second), time.Now().Add(time.Second))
		e.Time = time.Time{}
		require.NotZero(t, e.Thread)
		e.Thread = 0
		require.Equal(t, Event{
			PID: j.PID(), Comm: comm(t, j), SizeBytes: tc.size, Device: tc.device, Function: e.Function,
		}, e)
		require.Equal(t, tc.name, e.Function.String())
	}
	nothing(t, p)
	require.EqualValues(t, 10, p.Stats().Events)
}

func TestSuccessIsToldOnceAfterARefusalAndNeverWithoutOne(t *testing.T) {
	p := open(t, Options{})
	j := job(t, install(t))
	watch(t, p, j)
	require.NoError(t, j.Do(fakejob.Malloc(gib, fakejob.Success), fakejob.Malloc(gib, fakejob.InvalidValue)))
	nothing(t, p)

	require.NoError(t, j.Do(
		fakejob.Malloc(gib, fakejob.OutOfMemory),
		fakejob.Malloc(gib/2-1, fakejob.Success),  // another, smaller allocation
		fakejob.Malloc(gib, fakejob.InvalidValue), // neither refused nor granted
		fakejob.Malloc(gib, fakejob.Success),
		fakejob.Malloc(gib, fakejob.Success),
	))
	refused, granted := next(t, p), next(t, p)
	require.False(t, refused.Succeeded)
	require.True(t, granted.Succeeded)
	require.Equal(t, refused.Thread, granted.Thread)
	require.EqualValues(t, gib, granted.SizeBytes)
	nothing(t, p)
}

// XLA asks for a tenth less each time until it gets something.
func TestALittleLessTakesARefusalBack(t *testing.T) {
	p := open(t, Options{})
	j := job(t, install(t))
	watch(t, p, j)
	require.NoError(t, j.Do(
		fakejob.Malloc(1000, fakejob.OutOfMemory), fakejob.Malloc(900, fakejob.OutOfMemory), fakejob.Malloc(810, fakejob.Success),
	))
	for _, want := range []struct {
		size      uint64
		succeeded bool
	}{{1000, false}, {900, false}, {810, true}} {
		e := next(t, p)
		require.Equal(t, want.size, e.SizeBytes)
		require.Equal(t, want.succeeded, e.Succeeded)
	}
	nothing(t, p)
}

func TestSuccessOfAnotherProcessTakesNothingBack(t *testing.T) {
	p := open(t, Options{})
	library := install(t)
	one, other := job(t, library), job(t, library)
	require.Equal(t, probe.Watched{Libraries: 1}, watch(t, p, one, other))
	require.NoError(t, one.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	require.NoError(t, other.Do(fakejob.Malloc(gib, fakejob.Success)))
	require.Equal(t, one.PID(), next(t, p).PID)
	nothing(t, p)
}

func TestFullRingCountsWhatItDrops(t *testing.T) {
	p := open(t, Options{RingBytes: uint32(os.Getpagesize())})
	j := job(t, install(t))
	watch(t, p, j)
	for range os.Getpagesize() / 48 { // each record takes more
		require.NoError(t, j.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	}
	require.Positive(t, p.Stats().Dropped)
	require.NoError(t, p.Close())
	require.Positive(t, p.Stats().Dropped, "the counters stay readable")
}

// A process that is refused without end fills the ring for itself alone.
func TestAFloodOfRefusalsLosesItsOwn(t *testing.T) {
	p := open(t, Options{RingBytes: 4 * uint32(os.Getpagesize())})
	library := install(t)
	flooder, victim := job(t, library), job(t, library)
	watch(t, p, flooder, victim)
	flood := make([]fakejob.Call, 4*os.Getpagesize()/48) // each record takes more
	for i := range flood {
		flood[i] = fakejob.Malloc(gib, fakejob.OutOfMemory)
	}
	require.NoError(t, flooder.Do(flood...))
	require.NoError(t, victim.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
	told := 0
	for e := next(t, p); e.PID != victim.PID(); e = next(t, p) {
		told++
	}
	stats := p.Stats()
	require.EqualValues(t, len(flood), uint64(told)+stats.Dropped)
	require.Equal(t, stats.Dropped, stats.Crowded)
	require.NoError(t, flooder.Do(flood[0]))
	require.Equal(t, flooder.PID(), next(t, p).PID, "what was read gives its room back")
}

// A process whose threads are refused without end, or end after it, hides no refusal of
// another and no success that takes one back.
func TestThreadsOfOneProcessHideNoRefusalOfAnother(t *testing.T) {
	for name, stay := range map[string]bool{"they live": true, "they end": false} {
		t.Run(name, func(t *testing.T) {
			const threads, flood = 64, 200
			p := open(t, Options{threads: threads})
			library := install(t)
			flooder, victim, late := job(t, library), job(t, library), job(t, library)
			watch(t, p, flooder, victim, late)
			require.NoError(t, victim.Do(fakejob.Malloc(gib, fakejob.OutOfMemory)))
			require.Equal(t, victim.PID(), next(t, p).PID)

			crowd := fakejob.Malloc(gib, fakejob.OutOfMemory)
			crowd.Threads, crowd.Stay = flood, stay
			require.NoError(t, flooder.Do(crowd))
			require.NoError(t, victim.Do(fakejob.Malloc(gib, fakejob.Success)))
			require.NoError(t, late.Do(fakejob.Malloc(gib, fakejob.OutOfMemory), fakejob.Malloc(gib, fakejob.Success)))
			var told []Event
			for e := range waiting(t, p) {
				if e.PID != flooder.PID() {
					told = append(told, e)
				}
			}
			require.Len(t, told, 3)
			require.Equal(t, []bool{true, false, true}, []bool{told[0].Succeeded, told[1].Succeeded, told[2].Succeeded})
			require.Equal(t, []uint32{victim.PID(), late.PID(), late.PID()}, []uint32{told[0].PID, told[1].PID, told[2].PID})

			stats := p.Stats()
			require.Positive(t, stats.Dropped, "what found no room is said")
			require.Equal(t, stats.Dropped, stats.Crowded)
			requireShared(t, p)
			require.NoError(t, flooder.Close())
			require.NoError(t, p.hooks.tidy(p.ended))
			held, err := roomOf(p)
			require.NoError(t, err)
			require.Zero(t, held, "threads that ended give their room back")
			requireShared(t, p)
		})
	}
}

// waiting are the events that the calls before have caused.
func waiting(t *testing.T, p *Probe) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		p.hooks.reader.SetDeadline(time.Now())
		defer p.hooks.reader.SetDeadline(time.Time{})
		for {
			var e Event
			err := p.Read(&e)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			require.NoError(t, err)
			if !yield(e) {
				return
			}
		}
	}
}

func roomOf(p *Probe) (int32, error) { return room.InAll(p.hooks.collection.Maps[bpfMapHeld], 0) }

// requireShared: what is counted as held is what the map holds.
func requireShared(t *testing.T, p *Probe) {
	t.Helper()
	var owners []room.Owner
	var id uint32
	var entry bpfThread
	for all := p.hooks.collection.Maps[bpfMapThreads].Iterate(); all.Next(&id, &entry); {
		owners = append(owners, room.Owner{Tenant: entry.Owner.TenantSlot, User: entry.Owner.UserSlot})
	}
	held, err := room.Held(p.hooks.collection.Maps[bpfMapHeld])
	require.NoError(t, err)
	require.Equal(t, room.Counts(owners), held)
}

func TestCloseUnblocksReadAndMayComeTwice(t *testing.T) {
	p := open(t, Options{})
	done := make(chan error)
	go func() { done <- p.Read(new(Event)) }()
	require.NoError(t, p.Close())
	require.ErrorIs(t, <-done, probe.ErrClosed)
	require.NoError(t, p.Close())
	_, err := p.Watch(nil)
	require.ErrorIs(t, err, probe.ErrClosed)
}

// The self-test's child under a seccomp filter: without a probe it must live.
func TestConfinedChildLivesWithoutAProbe(t *testing.T) {
	for range 20 {
		survived, err := standin.Confined(1)
		require.NoError(t, err)
		require.True(t, survived)
	}
}

// TestNoProbeWhereNobodyKnowsWhatItDoesToContainers: a self-test that could not be
// made is no pass, but where there are no seccomp filters at all.
func TestNoProbeWhereNobodyKnowsWhatItDoesToContainers(t *testing.T) {
	privtest.Require(t)
	_, err := openConfined(Options{}, func(uint64) (bool, error) { return false, unix.EAGAIN })
	var none *ladder.NoRung
	require.ErrorAs(t, err, &none)
	require.ErrorContains(t, err, "find out whether processes under a seccomp filter live on")
	p, err := openConfined(Options{}, func(uint64) (bool, error) { return false, standin.ErrNoFilters })
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

// BenchmarkCall is a call of the library as a job makes it, with and without the probe
// on it: granted, as almost all are, and refused. The breakpoint is where the probe puts
// it, or at the function's first byte.
func BenchmarkCall(b *testing.B) {
	privtest.Require(b)
	file := install(b, tested)
	base, err := standin.Map(file)
	require.NoError(b, err)
	opened, err := os.Open(file)
	require.NoError(b, err)
	defer opened.Close()
	image, err := uprobe.Read(opened, functions())
	require.NoError(b, err)
	function, _ := image.Function(tested)
	for _, bench := range []struct {
		name   string
		at     uint64 // 0: no probe
		result uint32
	}{
		{"without_probe", 0, fakejob.Success},
		{"granted", function.Offset, fakejob.Success},
		{"refused", function.Offset, fakejob.OutOfMemory},
		{"granted_at_first_byte", function.Entry, fakejob.Success},
	} {
		b.Run(bench.name, func(b *testing.B) {
			if bench.at != 0 {
				p := open(b, Options{})
				links, err := p.hooks.attach(file, map[string]uint64{tested: bench.at})
				require.NoError(b, err)
				b.Cleanup(func() { require.NoError(b, links.Close()) })
			}
			for b.Loop() {
				standin.Alloc(base, gib, nil, bench.result)
			}
		})
	}
}
