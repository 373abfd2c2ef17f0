package ncclsocketstall

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

const second = int64(time.Second)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()

func fresh() *detector {
	return Detector().New(limitsOf(10 * second)).(*detector)
}

// idle is the record of a rank that waits for a peer, or has sent to one.
func idle(rank, peer, size int, receive bool, silence int64) *rule.Record {
	r := &rule.Record{Name: socketstall.Event, Time: began, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap()}
	r.Resource.PutStr("host.name", fmt.Sprintf("node-%d", rank/8))
	a := r.Attributes
	a.PutStr("gen_ai.training.job_id", "job")
	a.PutInt("gen_ai.training.rank", int64(rank))
	a.PutInt("gen_ai.training.world_size", int64(size))
	a.PutInt("process.pid", int64(1000+rank%8))
	a.PutStr("process.executable.name", "python")
	a.PutStr("nccl.socket.cause", string(socketstall.Waiting))
	a.PutStr("nccl.socket.kind", "data")
	a.PutStr("nccl.socket.stall.id", fmt.Sprintf("%d/%t", peer, receive))
	a.PutInt("nccl.socket.stall.age_ns", silence)
	a.PutInt("nccl.rank.last_sent_age_ns", silence)
	a.PutInt("nccl.rank.last_received_age_ns", silence-30e6)
	a.PutInt("nccl.socket.last_sent_age_ns", silence)
	a.PutStr("nccl.rank.state", "sleeping")
	a.PutDouble("nccl.rank.main_thread_cpu_share", 0.01)
	from, to := 20000+rank%8*100, 40000+peer%8*100
	if a.PutStr("nccl.socket.direction", "send"); receive {
		a.PutStr("nccl.socket.direction", "receive")
		from, to = 40000+rank%8*100, 20000+peer%8*100
	}
	a.PutStr("network.local.address", fmt.Sprintf("10.%d.%d.%d", rank/8>>8, rank/8&255, 1))
	a.PutInt("network.local.port", int64(from+hop(rank, peer, size, receive)))
	a.PutStr("network.peer.address", fmt.Sprintf("10.%d.%d.%d", peer/8>>8, peer/8&255, 1))
	a.PutInt("network.peer.port", int64(to+hop(rank, peer, size, receive)))
	return r
}

// hop tells the connections of one rank apart: how far on the receiver is.
func hop(rank, peer, size int, receive bool) int {
	if receive {
		rank, peer = peer, rank
	}
	d := (peer - rank + size) % size
	steps := 0
	for ; d > 1; d /= 2 {
		steps++
	}
	return steps
}

// records are those of a job in which each rank sends to the ranks 1, 2, 4 ...
// on, and one fell silent first, the others one after the other behind it.
func records(size, culprit, hops int) []*rule.Record {
	var all []*rule.Record
	for rank := range size {
		behind := int64((rank - culprit + size) % size)
		silence := 4*second - behind*50_000
		if behind == 0 {
			silence += 40e6
		}
		for h := range hops {
			next, previous := (rank+1<<h)%size, (rank-1<<h+size)%size
			all = append(all, idle(rank, previous, size, true, silence), idle(rank, next, size, false, silence))
		}
	}
	return all
}

func observe(d *detector, all []*rule.Record) {
	for _, r := range all {
		d.Observe(r)
	}
}

// The largest job there is: each of 16,384 ranks has six peers in both
// directions. Its culprit is found, in bounded memory and time.
func TestLargestJob(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it has the largest job")
	}
	const size, culprit = 16_384, 12_345
	all := records(size, culprit, 6)
	require.LessOrEqual(t, len(all), fixed.limits.Stalls)
	d := fresh()
	observe(d, all)
	findings := d.Decide(began + second)
	require.Len(t, findings, 1)
	require.EqualValues(t, culprit, findings[0].Attributes["gen_ai.training.rank"])
	require.Equal(t, heldSilent, findings[0].Attributes[attrHeld])
	require.Len(t, findings[0].Attributes[attrRanks], size-1)
	require.Zero(t, d.Evicted())
	require.Greater(t, d.Due(), began+second, "nothing has changed")
}

// A job with more stalls than are held: what is left of them names nobody for certain.
func TestAJobThatIsHeldInPartIsNotCertain(t *testing.T) {
	all := records(64, 12, 6)
	for i := 12 * 12; i < 13*12; i += 2 { // what rank 12 receives, it does not read
		all[i].Attributes.PutStr("nccl.socket.cause", "not_reading")
		all[i].Attributes.PutInt("nccl.socket.receive_queue.size", 4096)
	}
	for _, limit := range []int{len(all), len(all) - 1} {
		d := fresh()
		few := *d.thresholds
		few.limits.Stalls = limit
		d.thresholds, d.book = &few, socketstall.NewBook(few.limits)
		observe(d, all)
		findings := d.Decide(began + second)
		require.Len(t, findings, 1)
		require.Equal(t, limit == len(all), findings[0].Attributes[attrCertain])
		if limit < len(all) {
			require.Equal(t, "all stalls of the job: there are more than are held at once (767)", findings[0].Attributes[attrMissing])
			require.NotZero(t, d.Evicted())
		}
	}
}

// BenchmarkRound131072: the same for 131,072 ranks with two stalls each.
func BenchmarkRound131072(b *testing.B) {
	d := fresh()
	observe(d, records(131_072, 123_456, 1))
	if d.Evicted() != 0 {
		b.Fatal("not all stalls are held")
	}
	b.ReportAllocs()
	for b.Loop() {
		d.jobs["job"].Changed = true
		d.Decide(began + second)
	}
	b.ReportMetric(float64(held(d))/(1<<20), "MiB-held")
}

// BenchmarkRound16384: one operation is one round of the largest job: the graph
// of 196,608 stalls, and the walk to its culprit.
func BenchmarkRound16384(b *testing.B) {
	d := fresh()
	observe(d, records(16_384, 12_345, 6))
	b.ReportAllocs()
	for b.Loop() {
		d.jobs["job"].Changed = true
		d.Decide(began + second)
	}
	b.ReportMetric(float64(held(d))/(1<<20), "MiB-held")
}

// BenchmarkObserve16384: one operation is one record.
func BenchmarkObserve16384(b *testing.B) {
	all := records(16_384, 12_345, 6)
	d := fresh()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		d.Observe(all[i%len(all)])
	}
}

// held is the memory of the jobs of d, which it loses.
func held(d *detector) int64 {
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	clear(d.jobs)
	d.book = nil
	runtime.GC()
	runtime.ReadMemStats(&without)
	return int64(with.HeapAlloc) - int64(without.HeapAlloc)
}

// One job with more stalls than are held loses its oldest, counted.
func TestStallsAreCapped(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it has a million stalls")
	}
	d := fresh()
	r := idle(0, 1, 8, true, second)
	for i := range fixed.limits.Stalls + 1000 {
		r.Attributes.PutStr("nccl.socket.stall.id", fmt.Sprint(i))
		d.Observe(r)
	}
	require.LessOrEqual(t, d.book.Len(), fixed.limits.Stalls)
	require.Equal(t, d.book.Len(), d.jobs["job"].stalls.Len())
	require.NotZero(t, d.Evicted())
}

// TestAFloodOfFactsTakesRoomFromItself: processes of one host end without end; what else
// was said of that host and of others stays.
func TestAFloodOfFactsTakesRoomFromItself(t *testing.T) {
	fs := newFacts()
	fs.add("lost", &fact{Kind: "gpu.lost", Host: "loud", PIDs: []int64{7}, Last: 1})
	fs.add("stall", &fact{Kind: "fuse.stall", Host: "quiet", PIDs: []int64{7}, Last: 1})
	fs.add("exit", &fact{Kind: "process.exit", Host: "loud", Job: "llm of user 1", PIDs: []int64{8}, Last: 1})
	for i := range int64(1000) {
		fs.add(fmt.Sprint(i), &fact{Kind: "process.exit", Host: "loud", Job: "flood of user 2", PIDs: []int64{100 + i}, Last: 2 + i})
		fs.trim(64)
	}
	require.LessOrEqual(t, len(fs.All), 64)
	for _, key := range []string{"lost", "stall", "exit"} {
		require.Contains(t, fs.All, key)
	}
	for i := range int64(1000) { // each under a name of its own
		fs.add(fmt.Sprint("j", i), &fact{Kind: "process.exit", Host: "loud", Job: fmt.Sprint(i, " of user 2"), PIDs: []int64{100 + i}, Last: 2000 + i})
		fs.trim(64)
	}
	require.Contains(t, fs.All, "lost")
	require.Contains(t, fs.All, "stall")
}

func TestFactsAreCapped(t *testing.T) {
	d := fresh()
	r := &rule.Record{Name: "process.exit", Time: began, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap()}
	for i := range 3 * fixed.maxFacts {
		r.Time++
		r.Attributes.PutInt("process.pid", int64(i+2))
		d.Observe(r)
	}
	require.LessOrEqual(t, len(d.facts.All), fixed.maxFacts)
	require.LessOrEqual(t, len(d.facts.by), fixed.maxFacts)
	require.EqualValues(t, 3*fixed.maxFacts-len(d.facts.All), d.Evicted())
	d.facts.expire(r.Time+1, d.needs)
	require.Empty(t, d.facts.All)
	require.Empty(t, d.facts.by)
}

// A job of which nothing is heard is forgotten; its verdict stays as it is.
func TestQuietJobsAreForgotten(t *testing.T) {
	d := fresh()
	observe(d, records(8, 3, 1))
	require.Len(t, d.Decide(began+second), 1)
	require.Empty(t, d.Decide(d.Due()))
	require.Empty(t, d.jobs)
	require.Zero(t, d.book.Len())
	require.Zero(t, d.Due())
}

func TestStateThatDoesNotFitIsRefused(t *testing.T) {
	d := fresh()
	observe(d, records(4, 1, 1))
	good, err := d.Snapshot()
	require.NoError(t, err)
	require.NoError(t, fresh().Restore(good))
	for name, text := range map[string]string{
		"no JSON":           "{",
		"no book":           `{"stalls":null}`,
		"no stalls of it":   `{"jobs":{"job":{}}}`,
		"no conclusion":     strings.Replace(string(good), `"jobs":{"job":`, `"jobs":{"other":`, 1),
		"another name":      strings.Replace(string(good), `"name":"job"`, `"name":"other"`, 1),
		"another process":   strings.Replace(string(good), `"node-0/1001":{`, `"node-0/7":{`, 1),
		"no process":        `{"stalls":{"job":{"name":"job","processes":{"/1":null}}},"jobs":{"job":{}}}`,
		"no stall":          `{"stalls":{"job":{"name":"job","processes":{"/1":{"p":1,"stalls":{"a":null}}}}},"jobs":{"job":{}}}`,
		"no fact":           `{"facts":{"all":{"a":null}}}`,
		"maps that are not": `{"stalls":{"job":{"name":"job"}},"jobs":{"job":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, string(good), text)
			require.Error(t, fresh().Restore([]byte(text)))
		})
	}
}

// FuzzDetector shows hostile records and states: no panic, no finding without
// an id, state that can be saved and restored to the same bytes.
func FuzzDetector(f *testing.F) {
	f.Add("job", "node", int64(7), int64(3), "waiting", "receive", "10.0.0.1", int64(1), int64(4e9), "stopped", int64(1), []byte(`{}`))
	f.Add("", "", int64(-7), int64(1<<40), "network", "send", "::ffff:1", int64(70000), int64(-1), "\xff", int64(-1), []byte(`{"stalls":{"a":{"name":"a","processes":{"z/0":{"h":"z","stalls":{"x":{"c":"network","n":-1}}}}}},"jobs":{"a":{"changed":true}}}`))
	f.Fuzz(func(t *testing.T, job, host string, pid, rank int64, cause, direction, address string, port, age int64, state string, far int64, stored []byte) {
		d := fresh()
		_ = d.Restore(stored)
		for i, name := range append([]string{socketstall.Event, socketstall.Event, socketstall.EventEnd}, factEvents...) {
			r := &rule.Record{Name: name, Time: began + int64(i)*age%second, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap()}
			r.Resource.PutStr("host.name", host)
			for key, value := range map[string]string{
				"gen_ai.training.job_id": job, "nccl.socket.cause": cause, "nccl.socket.direction": direction, "nccl.rank.state": state,
				"network.local.address": address, "network.peer.address": address, "nccl.socket.stall.id": fmt.Sprint(i), "fuse.device": host,
			} {
				r.Attributes.PutStr(key, value)
			}
			for key, value := range map[string]int64{
				"process.pid": pid + int64(i%2), "gen_ai.training.rank": rank + int64(i%2), "network.local.port": port, "network.peer.port": port + 1,
				"nccl.socket.stall.age_ns": age, "nccl.rank.last_sent_age_ns": age, "nccl.socket.last_received_age_ns": age, "nccl.peer.rank": far,
			} {
				r.Attributes.PutInt(key, value)
			}
			d.Observe(r)
			for _, found := range d.Decide(began + int64(i)*second) {
				if found.ID == "" || found.Event == "" || pcommon.NewMap().FromRaw(found.Attributes) != nil {
					t.Fatalf("malformed finding %+v", found)
				}
			}
		}
		saved, err := d.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		again := fresh()
		if err := again.Restore(saved); err != nil {
			t.Fatal(err)
		}
		if copied, _ := again.Snapshot(); string(copied) != string(saved) {
			t.Fatal("the state changed on its way through a snapshot")
		}
	})
}

// ended is the record of the end of the stall that r tells of, so much later.
func ended(r *rule.Record, after int64) *rule.Record {
	end := &rule.Record{Name: socketstall.EventEnd, Time: r.Time + after, Resource: r.Resource, Attributes: r.Attributes}
	return end
}

// The ends of a stall come within the lateness, in any order. Until then the
// culprit that was told stands: what is left over accuses nobody.
func TestCulpritStandsWhileEndsMayBeLate(t *testing.T) {
	all := records(4, 2, 1)
	d := fresh()
	observe(d, all)
	findings := d.Decide(began + second)
	require.Len(t, findings, 1)
	require.EqualValues(t, 2, findings[0].Attributes["gen_ai.training.rank"])
	for i, r := range all { // one each second: the last comes 7 s late
		d.Observe(ended(r, 30*second))
		findings = d.Decide(began + 31*second + int64(i)*second)
		if i < len(all)-1 {
			require.Empty(t, findings, "after %d ends", i+1)
		}
	}
	require.Len(t, findings, 1)
	require.Equal(t, eventEnd, findings[0].Event)
}

// TestWhatMovesAfterItWasToldIsOverAndNotWithdrawn: what was told was so. What is left over, of
// which nothing can be concluded, does not refute it.
func TestWhatMovesAfterItWasToldIsOverAndNotWithdrawn(t *testing.T) {
	usual := func(all []*rule.Record, sent int64) []*rule.Record {
		for _, r := range all {
			r.Time = began + 20*second
			r.Attributes.PutStr("nccl.rank.silence", "usual")
			r.Attributes.PutInt("nccl.rank.last_sent_age_ns", 20*second-sent)
		}
		return all
	}
	const before, since = -4 * second, 19 * second
	for name, c := range map[string]struct {
		ends  bool
		sent  int64
		event string
		gone  bool
	}{
		"a stall has ended":                   {true, before, eventEnd, false},
		"the rank has sent data":              {false, since, eventEnd, false},
		"nothing moves, the pause is a usual": {false, before, eventCulprit, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, all := fresh(), records(4, 2, 1)
			observe(d, all)
			require.Len(t, d.Decide(began+second), 1)
			if c.ends {
				d.Observe(ended(all[0], 15*second))
			}
			observe(d, usual(records(4, 2, 1), c.sent))
			findings := d.Decide(began + 60*second)
			require.Len(t, findings, 1)
			require.Equal(t, c.event, findings[0].Event)
			require.Equal(t, c.gone, findings[0].Gone)
		})
	}
}

// A socket that moves now and then does not keep the job from being judged.
func TestOneSocketThatMovesNowAndThenDoesNotSilenceTheJob(t *testing.T) {
	all := records(4, 2, 1)
	d := fresh()
	observe(d, all)
	require.Len(t, d.Decide(began+second), 1)
	told := 0
	for i := range int64(12) { // rank 0's receiving side moves every 5 s, the others are not heard of
		d.Observe(ended(all[0], 5*second*(i+1)))
		told += len(d.Decide(began + 5*second*(i+1) + second))
	}
	require.Positive(t, told)
}

// limitsOf are the defaults of the pattern's own file.
func limitsOf(lateness int64) rule.Limits {
	rules, err := rule.LoadPaths("pattern.yaml")
	if err != nil {
		panic(err)
	}
	return rule.Limits{Lateness: lateness, Values: rules[0].Parameters}
}

// TestAStallThatIsToldAfterTheEndsOfItsEpisodeWaits: its own end may be late, too. One that is told to last is told.
func TestAStallThatIsToldAfterTheEndsOfItsEpisodeWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(d rule.Algorithm, late *rule.Record)
		told int
	}{
		"its end comes": {func(d rule.Algorithm, late *rule.Record) {
			require.Empty(t, d.Decide(began+36*second))
			d.Observe(ended(late, 2*second))
		}, 0},
		"it lasts": {func(d rule.Algorithm, late *rule.Record) {
			late.Time += 12 * second
			d.Observe(late)
		}, 1},
		"nothing more comes": {func(rule.Algorithm, *rule.Record) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d, all := fresh(), records(4, 2, 1)
			late := records(4, 2, 1)[2*2] // of rank 2, which is stopped
			late.Attributes.PutStr("nccl.socket.cause", "not_reading")
			late.Attributes.PutStr("nccl.socket.stall.id", "late")
			late.Attributes.PutStr("nccl.rank.state", "stopped")
			observe(d, all)
			require.Len(t, d.Decide(began+second), 1)
			for _, r := range all {
				d.Observe(ended(r, 30*second))
			}
			findings := d.Decide(began + 31*second)
			require.Len(t, findings, 1)
			require.Equal(t, eventEnd, findings[0].Event)
			late.Time = began + 28*second
			d.Observe(late)
			require.Empty(t, d.Decide(began+32*second))
			tc.then(d, late)
			told := 0
			for i := range int64(20) {
				told += len(d.Decide(began + (40+i)*second))
			}
			require.Equal(t, tc.told, told)
		})
	}
}
