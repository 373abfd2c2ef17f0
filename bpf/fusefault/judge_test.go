//go:build linux && (amd64 || arm64)

package fusefault

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

// Code of an imaginary kernel.
var testCode = kernelCode{
	fault: kerninfo.Code{{Start: 1000, End: 1100}}, read: kerninfo.Code{{Start: 2000, End: 2100}}, write: kerninfo.Code{{Start: 3000, End: 3100}},
	answer: kerninfo.Code{{Start: 6000, End: 6100}}, sync: kerninfo.Code{{Start: 4000, End: 4100}}, beyond: kerninfo.Code{{Start: 5000, End: 5100}},
}

// A thread that began at 10 and sleeps killably, in a fault that began at 100.
func sleeper(change func(*thread)) thread {
	t := thread{tid: 7, pid: 5, start: 10, completed: 40, state: 0x102, comm: "python", stack: []uint64{900, 1050}}
	if change != nil {
		change(&t)
	}
	return t
}

func TestFaultIsInFlightOnlyWhileItsThreadIsInIt(t *testing.T) {
	for name, want := range map[string]struct {
		thread   thread
		absent   bool
		code     kernelCode
		requests []request
		flying   bool
		ended    bool
	}{
		"asleep in the fault":            {thread: sleeper(nil), code: testCode, flying: true},
		"asleep by a request of its own": {thread: sleeper(func(t *thread) { t.state = 1 }), code: testCode, flying: true},
		"completed since":                {thread: sleeper(func(t *thread) { t.completed = 41 }), code: testCode, ended: true},
		"failed, and asleep elsewhere":   {thread: sleeper(func(t *thread) { t.stack = []uint64{900} }), code: testCode},
		"running":                        {thread: sleeper(func(t *thread) { t.state = 0 }), code: testCode},
		"woken by a signal, request unanswered": {thread: sleeper(func(t *thread) { t.state = 0 }), code: testCode,
			requests: []request{{1, bpfRequest{StartNs: 101, Tid: 7, Device: 42}}}, flying: true},
		"thread gone":                       {absent: true, code: testCode, ended: true},
		"thread dead and not reaped":        {thread: sleeper(func(t *thread) { t.state = taskDead }), code: testCode, ended: true},
		"another thread of the same number": {thread: sleeper(func(t *thread) { t.start = 101 }), code: testCode, ended: true},
		"no addresses, uninterruptible":     {thread: sleeper(nil), flying: true},
		"no addresses, interruptible":       {thread: sleeper(func(t *thread) { t.state = 1 })},
		"no stack, uninterruptible":         {thread: sleeper(func(t *thread) { t.stack = nil }), code: testCode, flying: true},
		"no addresses, own request": {thread: sleeper(func(t *thread) { t.state = 1 }),
			requests: []request{{1, bpfRequest{StartNs: 101, Tid: 7, Device: 42}}}, flying: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := picture{
				now: 200 + forgetAfter, minAge: 100, code: want.code, requests: want.requests, threads: map[uint32]thread{},
				faults: []fault{{7, bpfFault{StartNs: 100, Completed: 40, Device: 42, Pid: 5, Inode: 9}}},
			}
			if !want.absent {
				p.threads[7] = want.thread
			}
			v := p.judge()
			var faults []wait
			for _, w := range v.waits {
				if w.Kind == KindFault {
					faults = append(faults, w)
				}
			}
			require.Equal(t, want.ended, len(v.endedFaults) == 1)
			if !want.flying {
				require.Empty(t, faults)
				return
			}
			require.Equal(t, []wait{{start: 100, InFlight: InFlight{
				ID: identity(7, 100), Kind: KindFault, Device: Device{0, 42}, Inode: 9, PID: 5, TID: 7, Comm: "python",
			}}}, faults)
		})
	}
}

func TestEndedFaultsAreForgottenOnlyWhenTheThreadWasQuietForLong(t *testing.T) {
	p := picture{
		now: 100 + forgetAfter, minAge: 100, code: testCode,
		threads: map[uint32]thread{7: sleeper(func(t *thread) { t.completed = 41 })},
		faults:  []fault{{7, bpfFault{StartNs: 100, Completed: 40}}},
	}
	require.Empty(t, p.judge().endedFaults)
	p.now++
	require.Len(t, p.judge().endedFaults, 1)
}

func TestRequestsEndWithTheirThread(t *testing.T) {
	waiter := sleeper(func(t *thread) { t.stack = []uint64{900, 6050} })
	one := func(change func(*bpfRequest)) request {
		r := bpfRequest{StartNs: 100, Tid: 7, Pid: 5, Device: 42, Opcode: opRead, NodeId: 3}
		change(&r)
		return request{r.StartNs, r}
	}
	for name, want := range map[string]struct {
		requests []request
		threads  map[uint32]thread
		flying   int
		ended    int
	}{
		"waits":                     {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: waiter}, 1, 0},
		"asleep elsewhere":          {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: sleeper(nil)}, 0, 1},
		"running":                   {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: sleeper(func(t *thread) { t.state = 0 })}, 1, 0},
		"no stack":                  {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: sleeper(func(t *thread) { t.stack = nil })}, 1, 0},
		"gone":                      {[]request{one(func(*bpfRequest) {})}, nil, 0, 1},
		"dead":                      {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: sleeper(func(t *thread) { t.state = taskDead })}, 0, 1},
		"number used again":         {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: sleeper(func(t *thread) { t.start, t.stack = 101+coarse, waiter.stack })}, 0, 1},
		"begun a jiffy too early":   {[]request{one(func(*bpfRequest) {})}, map[uint32]thread{7: sleeper(func(t *thread) { t.start, t.stack = 150, waiter.stack })}, 1, 0},
		"young":                     {[]request{one(func(r *bpfRequest) { r.StartNs = 950 })}, map[uint32]thread{7: waiter}, 0, 0},
		"waits for a newer one":     {[]request{one(func(*bpfRequest) {}), one(func(r *bpfRequest) { r.StartNs = 120 })}, map[uint32]thread{7: waiter}, 1, 1},
		"young newer one":           {[]request{one(func(*bpfRequest) {}), one(func(r *bpfRequest) { r.StartNs = 950 })}, map[uint32]thread{7: waiter}, 0, 1},
		"background, nobody's":      {[]request{one(func(r *bpfRequest) { r.Background, r.Tid = 1, 0 })}, nil, 1, 0},
		"background, thread gone":   {[]request{one(func(r *bpfRequest) { r.Background = 1 })}, nil, 1, 0},
		"begun after the last look": {[]request{one(func(r *bpfRequest) { r.StartNs = 2000 })}, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := picture{now: 1000, minAge: 100, code: testCode, requests: want.requests, threads: want.threads}
			v := p.judge()
			require.Len(t, v.waits, want.flying)
			require.Len(t, v.endedRequests, want.ended)
		})
	}
}

// A thread waits in a fault for a request of its own, and only the request was noted.
func TestFaultIsToldByItsRequest(t *testing.T) {
	own := request{9, bpfRequest{StartNs: 100, Tid: 7, Pid: 5, Device: 42, Opcode: opRead, NodeId: 3}}
	faultOf := func(stack []uint64, faults ...fault) []wait {
		p := picture{now: 1000, minAge: 100, code: testCode, requests: []request{own}, faults: faults,
			threads: map[uint32]thread{7: sleeper(func(t *thread) { t.state, t.stack = 1, stack })}}
		return slices.DeleteFunc(p.judge().waits, func(w wait) bool { return w.Kind != KindFault })
	}
	told := faultOf([]uint64{6050, 1050})
	require.Equal(t, []wait{{start: 100, InFlight: InFlight{ID: identity(7, 100), Kind: KindFault, Device: Device{0, 42}, PID: 5, TID: 7, Comm: "python"}}}, told)
	require.Empty(t, faultOf([]uint64{6050}), "a request outside a fault")
	noted := fault{7, bpfFault{StartNs: 90, Completed: 40, Device: 42, Pid: 5, Inode: 9}}
	require.EqualValues(t, 9, faultOf([]uint64{6050, 1050}, noted)[0].Inode, "the fault was noted: once")
	require.Len(t, faultOf([]uint64{6050, 1050}, noted), 1)
	noted.Completed = 39
	require.Equal(t, told, faultOf([]uint64{6050, 1050}, noted), "an earlier fault was")
}

// A thread that sleeps in read(2) of a FUSE file, with and without readahead of its own.
// The time of a request may be a jiffy's, and earlier than it was: what a fault asks for is no older than the fault. What
// began long before is another.
func TestWhatAFaultAsksForIsNoOlderThanTheFault(t *testing.T) {
	const fell = 3 * coarse
	for began, want := range map[uint64]uint64{fell - 1: fell + 1, fell: fell + 1, fell - coarse + 1: fell + 1, fell - coarse: fell - coarse, fell + 7: fell + 7} {
		for _, background := range []uint32{0, 1} {
			p := picture{
				now: 200 + 2*forgetAfter, minAge: 100, code: testCode, threads: map[uint32]thread{7: sleeper(func(t *thread) { t.stack = []uint64{6050, 1050} })},
				faults:   []fault{{7, bpfFault{StartNs: fell, Completed: 40, Device: 42, Pid: 5}}},
				requests: []request{{1, bpfRequest{StartNs: began, Tid: 7, Device: 42, Background: background}}},
			}
			starts := map[Kind]uint64{}
			for _, w := range p.judge().waits {
				starts[w.Kind] = w.start
			}
			require.Equal(t, map[Kind]uint64{KindFault: fell, KindRequest: want}, starts, "%d, in the background: %d", began, background)
		}
	}
}

func TestReadersOfOthersPagesAreFollowed(t *testing.T) {
	reader := sleeper(func(t *thread) { t.stack, t.switches = []uint64{900, 2050}, 3 })
	mine, other := Device{0, 42}, Device{0, 43}
	on := func(d Device, ok bool) func(thread) (Device, bool) {
		return func(thread) (Device, bool) { return d, ok }
	}
	known := map[Device]bool{mine: true}
	see := func(s sightings, now uint64, t thread, requests []request, deviceOf func(thread) (Device, bool)) []wait {
		p := &picture{now: now, minAge: 100, code: testCode, threads: map[uint32]thread{7: t}, requests: requests}
		v := p.judge()
		s.follow(p, &v, known, deviceOf)
		return v.waits
	}

	s := sightings{}
	require.Empty(t, see(s, 1000, reader, nil, on(mine, true)), "seen for the first time")
	waits := see(s, 1100, reader, nil, on(other, true)) // not asked again
	require.Len(t, waits, 1)
	require.Equal(t, InFlight{ID: waits[0].ID, Kind: KindRequest, Device: mine, Opcode: opRead, PID: 5, TID: 7, Comm: "python"}, waits[0].InFlight)
	require.EqualValues(t, 1000, waits[0].start)
	require.Equal(t, waits, see(s, 1200, reader, nil, on(mine, true)), "the same one")
	reader.switches++
	require.Empty(t, see(s, 1300, reader, nil, on(mine, true)), "it ran in between")
	require.Empty(t, see(s, 1500, sleeper(func(t *thread) { t.stack = []uint64{2050, 1050} }), nil, on(mine, true)), "a fault within")
	require.Empty(t, s)

	for name, deviceOf := range map[string]func(thread) (Device, bool){"another file system": on(other, true), "unknown": on(Device{}, false)} {
		s := sightings{}
		require.Empty(t, see(s, 1000, reader, nil, deviceOf), name)
		require.Empty(t, see(s, 2000, reader, nil, deviceOf), name)
	}

	readahead := []request{
		{1, bpfRequest{StartNs: 500, Tid: 7, Pid: 5, Device: 42, Opcode: opRead, Background: 1}},
		{2, bpfRequest{StartNs: 400, Tid: 7, Pid: 5, Device: 42, Opcode: opRead, Background: 1}},
		{3, bpfRequest{StartNs: 300, Tid: 7, Pid: 5, Device: 43, Opcode: opRead, Background: 1}},
	}
	var waiting []uint64
	for _, w := range see(sightings{}, 1000, reader, readahead, on(mine, true)) {
		if !w.Background {
			waiting = append(waiting, w.start)
		}
	}
	require.Equal(t, []uint64{400}, waiting, "the oldest of its own on that file system, once")
}

func TestOperations(t *testing.T) {
	for name, want := range map[string]struct {
		state  uint32
		stack  []uint64
		opcode uint32
	}{
		"read":                  {0x102, []uint64{1, 2050}, opRead},
		"write":                 {2, []uint64{1, 3050}, opWrite},
		"fsync":                 {2, []uint64{1, 4050}, opFsync},
		"passed through":        {2, []uint64{1, 5050, 2050}, 0},
		"interruptible":         {1, []uint64{1, 2050}, 0},
		"a fault in the buffer": {2, []uint64{1, 1050, 2050}, 0},
		"elsewhere":             {2, []uint64{1}, 0},
		"no stack":              {2, nil, 0},
	} {
		p := picture{code: testCode}
		require.Equal(t, want.opcode, p.operation(thread{state: want.state, stack: want.stack}), name)
	}
}

func TestIdentityTellsUsesOfOneNameApart(t *testing.T) {
	seen := map[uint64]bool{}
	for name := range uint64(300) {
		for moment := range uint64(300) {
			id := identity(0xffff888100000000+name*168, 1e15+moment)
			require.False(t, seen[id])
			seen[id] = true
		}
	}
}
