package straggler

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// told is what one rank tells of a communicator in one window of 30 s: eight calls.
func told(comm string, rank, size, window int64, late time.Duration) *rule.Record {
	at := 1_000*second + 30*window*second
	r := &rule.Record{Name: eventArrivals, Time: at, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap()}
	r.Resource.PutStr("host.name", fmt.Sprintf("node-%d", rank/8))
	a := r.Attributes
	a.PutStr("gen_ai.training.job_id", "job-1")
	a.PutInt("gen_ai.training.rank", rank)
	a.PutInt("process.pid", 4000+rank)
	a.PutStr("nccl.call.comm", comm)
	a.PutInt("nccl.call.comm_rank", rank)
	a.PutInt("nccl.call.comm_size", size)
	a.PutInt("nccl.call.pause_ns", second)
	a.PutInt("nccl.call.clock_error_ns", second/1000)
	numbers, ages := a.PutEmptySlice("nccl.call.arrival_numbers"), a.PutEmptySlice("nccl.call.arrival_ages_ns")
	for n := range int64(8) {
		numbers.AppendEmpty().SetInt(8*window + n)
		ages.AppendEmpty().SetInt(29*second - 3*n*second - int64(late))
	}
	return r
}

// tellAll shows what all ranks tell in some windows, and returns what is found.
func tellAll(t testing.TB, d rule.Algorithm, from, to, size int64, late func(rank, window int64) time.Duration) (all []rule.Finding) {
	t.Helper()
	for window := from; window < to; window++ {
		for rank := range size {
			require.True(t, d.Observe(told("0xa11", rank, size, window, late(rank, window))))
		}
		all = append(all, d.Decide(1_000*second+30*window*second+11*second)...)
	}
	return all
}

func fifth(rank, _ int64) time.Duration {
	if rank == 5 {
		return 300 * time.Millisecond
	}
	return 0
}

func TestARankThatCallsLateIsNamed(t *testing.T) {
	d := newDetector()
	require.Empty(t, tellAll(t, d, 0, 2, 16, fifth), "for no longer than it took to see that")
	found := tellAll(t, d, 2, 3, 16, fifth)
	require.Len(t, found, 1)
	f := found[0]
	require.Equal(t, eventLate, f.Event)
	require.Equal(t, []any{int64(5), "300ms", int64(16), int64(16), int64(15)}, []any{
		f.Attributes["gen_ai.training.rank"], f.Attributes["straggler.lateness"], f.Attributes["straggler.late"], f.Attributes["straggler.arrivals"], f.Attributes["straggler.peers"],
	})
	require.Empty(t, tellAll(t, d, 3, 4, 16, fifth), "told once")
	onTime := func(int64, int64) time.Duration { return 0 }
	found = tellAll(t, d, 4, 6, 16, onTime)
	require.Len(t, found, 1)
	require.Equal(t, eventInTime, found[0].Event)
}

// Ranks of one host have one clock. Of several, what their clocks may be wrong is taken off.
func TestClocksAreBelievedAsFarAsTheySay(t *testing.T) {
	say := func(wrong int64) []rule.Finding {
		d := newDetector()
		var all []rule.Finding
		for window := range int64(4) {
			for rank := range int64(16) {
				r := told("0xa11", rank, 16, window, map[bool]time.Duration{true: 300 * time.Millisecond}[rank == 15])
				r.Resource.PutStr("host.name", fmt.Sprintf("node-%d", rank)) // each alone
				r.Attributes.PutInt("nccl.call.clock_error_ns", wrong)
				if wrong < 0 {
					r.Attributes.Remove("nccl.call.clock_error_ns")
				}
				require.True(t, d.Observe(r))
			}
			all = append(all, d.Decide(1_000*second+30*window*second+11*second)...)
		}
		return all
	}
	require.Len(t, say(10_000_000), 1)
	require.Empty(t, say(150_000_000), "two clocks may explain it")
	require.Empty(t, say(-1), "nobody knows")
}

func TestArrivalsSurviveARestart(t *testing.T) {
	d := newDetector()
	require.Empty(t, tellAll(t, d, 0, 2, 16, fifth))
	require.True(t, d.Observe(told("0xa11", 0, 16, 2, 0))) // one that waits for its peers
	state, err := d.Snapshot()
	require.NoError(t, err)
	again := newDetector()
	require.NoError(t, again.Restore(state))
	same, err := again.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(state), string(same))
	require.Equal(t, d.Due(), again.Due())
	require.Len(t, tellAll(t, again, 2, 3, 16, fifth), 1)
}

// A host that makes up communicators, or ranks of one, takes room from itself.
func TestAFloodOfArrivalsTakesRoomFromItself(t *testing.T) {
	for name, change := range map[string]func(r *rule.Record, i int64){
		"communicators": func(r *rule.Record, i int64) { r.Attributes.PutStr("nccl.call.comm", fmt.Sprintf("0x%x", i)) },
		"ranks":         func(r *rule.Record, i int64) { r.Attributes.PutInt("nccl.call.comm_rank", i) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDetector()
			require.Empty(t, tellAll(t, d, 0, 2, 16, fifth))
			const most = 4096
			d.(*detector).arrivals.most = most
			for i := range int64(most) {
				r := told("0xbad", 0, 1<<20, 1, 0)
				r.Resource.PutStr("host.name", "loud")
				r.Attributes.PutStr("gen_ai.training.job_id", "flood")
				change(r, i)
				d.Observe(r)
			}
			require.Positive(t, d.Evicted())
			require.LessOrEqual(t, d.(*detector).arrivals.held(), most)
			require.Len(t, tellAll(t, d, 2, 3, 16, fifth), 1)
		})
	}
}

// One of many ranks makes up collectives that nobody else has called: each takes room for all.
func TestACollectiveTakesRoomForAllRanks(t *testing.T) {
	d := newDetector()
	const most, size = 4096, 512
	d.(*detector).arrivals.most = most
	for rank := range int64(size) {
		d.Observe(told("0xbad", rank, size, 0, 0))
	}
	for window := range int64(64) {
		d.Observe(told("0xbad", size-1, size, window, 0))
		require.LessOrEqual(t, d.(*detector).arrivals.held(), most)
	}
	require.Positive(t, d.Evicted())
	state, err := d.Snapshot()
	require.NoError(t, err)
	again := newDetector()
	require.NoError(t, again.Restore(state))
	require.LessOrEqual(t, again.(*detector).arrivals.held(), most)
}

// A state that asks for more room than there is loses the arrivals that ask for it.
func TestAStateThatAsksForTooMuchIsCut(t *testing.T) {
	d := newDetector()
	const size = 8192
	for rank := range int64(size) {
		d.Observe(told("0xbad", rank, size, 0, 0))
	}
	g := d.(*detector).arrivals.groups[groupKey("", "job-1", "0xbad")]
	for number := range int64(1024) {
		g.Samples[100+number] = &arrival{at: []int64{1}, heard: 1}
	}
	state, err := d.Snapshot()
	require.NoError(t, err)
	again := newDetector()
	require.NoError(t, again.Restore(state))
	require.EqualValues(t, 1, again.Evicted())
	require.Equal(t, size, again.(*detector).arrivals.held(), "its members alone")
}

func TestArrivalsThatCannotBeAreRefused(t *testing.T) {
	for name, change := range map[string]func(pcommon.Map){
		"no job":              func(a pcommon.Map) { a.Remove("gen_ai.training.job_id") },
		"no rank":             func(a pcommon.Map) { a.Remove("gen_ai.training.rank") },
		"no process":          func(a pcommon.Map) { a.Remove("process.pid") },
		"a rank beyond all":   func(a pcommon.Map) { a.PutInt("nccl.call.comm_rank", 16) },
		"fewer ages":          func(a pcommon.Map) { a.PutEmptySlice("nccl.call.arrival_ages_ns") },
		"a long communicator": func(a pcommon.Map) { a.PutStr("nccl.call.comm", string(make([]byte, 100))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := told("0xa11", 5, 16, 0, 0)
			change(r.Attributes)
			require.False(t, newDetector().Observe(r))
		})
	}
	d := newDetector()
	r := told("0xa11", 5, 16, 0, 0)
	r.Attributes.PutEmptySlice("nccl.call.arrival_ages_ns").AppendEmpty().SetInt(-1 << 62)
	r.Attributes.PutEmptySlice("nccl.call.arrival_numbers").AppendEmpty().SetInt(7)
	require.True(t, d.Observe(r))
	require.Zero(t, d.Due(), "of no time")
}

// BenchmarkArrivals131072 is a window of a job of that many ranks, which share one
// communicator of all, one of eight and one of 1,024.
func BenchmarkArrivals131072(b *testing.B) {
	const size = 131_072
	var list []*rule.Record
	d := newDetector()
	window := int64(0)
	d.(*detector).arrivals.most = 4 * maxArrivals
	for b.Loop() {
		b.StopTimer()
		list = list[:0]
		for rank := range int64(size) {
			world := told("0xa11", rank, size, window, fifth(rank, 0))
			for _, name := range []string{"nccl.call.arrival_numbers", "nccl.call.arrival_ages_ns"} {
				v, _ := world.Attributes.Get(name)
				n := int64(0)
				v.Slice().RemoveIf(func(pcommon.Value) bool { n++; return n > 2 })
			}
			eight, many := told(fmt.Sprintf("0xe%x", rank/8), rank%8, 8, window, fifth(rank, 0)), told(fmt.Sprintf("0xd%x", rank%128), rank/128, 1024, window, fifth(rank, 0))
			for _, r := range []*rule.Record{eight, many} {
				r.Resource.PutStr("host.name", fmt.Sprintf("node-%d", rank/8))
				r.Attributes.PutInt("gen_ai.training.rank", rank)
				r.Attributes.PutInt("process.pid", 4000+rank)
			}
			list = append(list, world, eight, many)
		}
		b.StartTimer()
		for _, r := range list {
			d.Observe(r)
		}
		d.Decide(list[len(list)-1].Time)
		window++
	}
	b.ReportMetric(float64(len(list))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
