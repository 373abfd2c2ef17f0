package ncclhang

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
)

// largeJob gives the records of one rank of a job of that many ranks that hangs:
// 2,000 entries in three groups (tensor parallel of 8, data parallel, all). Rank
// 5 stopped before the last step of its tensor group; its peers there wait for
// it, and every other rank waits for one of them in its data-parallel group.
func largeJob(world, rank int) plog.Logs {
	j := newJob(world)
	var did []string
	for i := range 1000 {
		did = append(did, []string{reduce, allGather, half, brain}[i%4])
	}
	first, tensor, data := rank/8*8, said{did: did, finished: 1000, first: 9000}, said{did: did[:500], finished: 499, first: 4000}
	if rank < 8 {
		tensor.finished, data.did = 999, did[:499]
	}
	if rank == 5 {
		tensor.did = did[:999]
	}
	tensor.rank, tensor.group, tensor.members = rank, fmt.Sprintf("tp%d", rank/8), fmt.Sprintf("%d-%d", first, first+7)
	data.rank, data.group, data.members = rank, fmt.Sprintf("dp%d", rank%8), fmt.Sprintf("%d-%d/8", rank%8, world-8+rank%8)
	all := said{rank: rank, group: "0", desc: "default_pg", members: fmt.Sprintf("0-%d", world-1), did: did[:500], finished: 500, first: 700}
	return j.in(tensor).in(data).in(all).logs()
}

// largeStalls gives so many stalls of one rank of that job: rings of NCCL, data
// and otherwise, in which rank 5 does not read.
func largeStalls(world, rank, stalls int) plog.Logs {
	logs := plog.NewLogs()
	for i := range stalls {
		peer := (rank + world - 1 - i/2) % world
		s := socket{rank: rank, peer: peer, cause: "waiting", direction: []string{"receive", "send"}[i%2], at: -5 * time.Second, host: fmt.Sprintf("node-%d", rank/8), world: world}
		if rank == 5 && i == 0 {
			s.cause = "not_reading"
		}
		s.record(logs.ResourceLogs().AppendEmpty())
		a := logs.ResourceLogs().At(i).ScopeLogs().At(0).LogRecords().At(0).Attributes()
		a.PutStr("network.local.address", fmt.Sprintf("10.0.%d.%d", rank>>11, rank>>3&255))
		a.PutStr("network.peer.address", fmt.Sprintf("10.0.%d.%d", peer>>11, peer>>3&255))
		a.PutInt("network.local.port", int64(40000+rank%8*16+i))
		a.PutInt("network.peer.port", int64(40000+peer%8*16+i))
	}
	return logs
}

// BenchmarkRound joins a job of 16,384 ranks with 2,000 entries each, without and with twelve
// socket stalls each, and one of 131,072 ranks with two, as many as are held. A round is the join
// alone; taking a record in happens as it arrives.
func BenchmarkRound(b *testing.B) {
	for _, one := range []struct{ world, stalls int }{{1024, 0}, {16384, 0}, {131072, 0}, {1024, 12}, {16384, 12}, {131072, 2}} {
		b.Run(fmt.Sprintf("ranks=%d/stalls=%d", one.world, one.stalls*one.world), func(b *testing.B) { benchRound(b, one.world, one.stalls) })
	}
}

func benchRound(b *testing.B, world, stalls int) {
	j := newJoin(DefaultOptions)
	spent := time.Duration(0)
	for rank := range world {
		logs := largeJob(world, rank)
		if stalls > 0 {
			largeStalls(world, rank, stalls).ResourceLogs().MoveAndAppendTo(logs.ResourceLogs())
		}
		at := time.Now()
		j.Add(logs, written)
		spent += time.Since(at)
	}
	if j.Evicted() != 0 {
		b.Fatal("not all of it is held")
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.ReportAllocs()
	for b.Loop() {
		found := j.runs["llm"].analyse(&DefaultOptions, j.book)
		if len(found) != 1 || !slices.Equal(found[0].Culprits, []int{5}) || len(found[0].Affected) != world || (stalls > 0) != (found[0].Sockets == Agree) {
			b.Fatalf("%d findings, the first: %s; sockets: %s", len(found), found[0].String(), found[0].Stalls)
		}
	}
	b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "MiB-held")
	b.ReportMetric(float64(spent.Microseconds())/float64(world), "µs/rank-taken-in")
	runtime.KeepAlive(j)
}

// BenchmarkGPUs judges jobs whose ranks have all called and all wait, each on a GPU on which a kernel
// runs, but for one.
func BenchmarkGPUs(b *testing.B) {
	for _, world := range []int{1024, 131072} {
		b.Run(fmt.Sprint("ranks=", world), func(b *testing.B) {
			c := newCalls(world)
			c.stands(c.all(), 10, "overdue", but(world)...).stacks("gpu", but(world)...).gpu("busy", but(world, 5)...).gpu("idle", 5)
			j := newJoin(DefaultOptions)
			j.Add(c.list, c.at)
			c.list = plog.NewLogs()
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range j.calls.runs {
					for _, comm := range r.comms {
						comm.dirty = true
					}
					f := r.analyse(nil, nil, c.at.Add(time.Minute).UnixNano())
					if f == nil || !f.below() {
						b.Fatalf("found %v", f)
					}
					j.calls.gpus.ask(f)
					if f.Rank() != 5 || f.Device != gpuOf(5) {
						b.Fatalf("found %s", f.String())
					}
				}
			}
			b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "MiB-held")
			runtime.KeepAlive(j)
		})
	}
}

// BenchmarkSnapshot16384 saves the state of the largest job with its stalls: to copy it is the
// pause of a processor that keeps it, to encode it is not.
func BenchmarkSnapshot16384(b *testing.B) {
	const world = 16384
	j := newJoin(DefaultOptions)
	for rank := range world {
		j.Add(largeJob(world, rank), written)
		j.Add(largeStalls(world, rank, 12), written)
	}
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			j.Save()
		}
	})
	b.Run("encode", func(b *testing.B) {
		saved, size := j.Save(), 0
		b.ReportAllocs()
		for b.Loop() {
			state, err := saved.Encode()
			if err != nil {
				b.Fatal(err)
			}
			size = len(state)
		}
		b.ReportMetric(float64(size)/(1<<20), "MiB-saved")
	})
}
