package patterndetectorprocessor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkUnmatched is batches of 1,000 records that no rule wants: without a history nobody
// looks at them, with one some of each second may stand near a verdict.
func BenchmarkUnmatched(b *testing.B) {
	for name, options := range map[string][]rigOption{"alone": nil, "history": {withArchive(newArchive())}} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, options...).start(b)
			ld := records(began, "anything", make([]string, 1000)...)
			b.ReportAllocs()
			for b.Loop() {
				_ = r.logs.ConsumeLogs(context.Background(), ld)
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkTraces is what traces cost records and metrics: nothing where the component is in no
// traces pipeline (off), then with a pipeline in which no step comes (on), and with the steps of
// 1,024 ranks (steps). Batches of 1,000 records that no rule wants, and of 100 series of stalls,
// each with an exemplar.
func BenchmarkTraces(b *testing.B) {
	for _, name := range []string{"off", "on", "steps"} {
		var r *rig
		if name == "off" {
			r = newRig(b).start(b)
		} else {
			var traces *tracesProcessor
			r, traces, _ = newStepRig(b)
			for rank := range int64(1024) {
				if name == "steps" {
					require.NoError(b, traces.ConsumeTraces(b.Context(), stepSpan("node-17", rank, 7, 0, time.Hour)))
				}
			}
		}
		b.Run(name+"/logs", func(b *testing.B) {
			ld := records(began, "anything", make([]string, 1000)...)
			b.ReportAllocs()
			for b.Loop() {
				_ = r.logs.ConsumeLogs(context.Background(), ld)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
		})
		b.Run(name+"/metrics", func(b *testing.B) {
			md := stalled("node-17", "proven", 0, 7, time.Second)
			points := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
			for rank := range int64(99) {
				point := points.AppendEmpty()
				points.At(0).CopyTo(point)
				point.Exemplars().At(0).FilteredAttributes().PutInt("gen_ai.training.rank", 1+rank)
			}
			b.ReportAllocs()
			for b.Loop() {
				_ = r.metrics.ConsumeMetrics(context.Background(), md)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/point")
		})
	}
}

// withAndWithoutStorage runs a benchmark on both. The clock goes on by a second
// with every 1,000 calls of pass.
func withAndWithoutStorage(b *testing.B, run func(b *testing.B, r *rig, pass func(n int))) {
	for _, name := range []string{"memory", "storage"} {
		b.Run(name, func(b *testing.B) {
			var options []rigOption
			if name == "storage" {
				options = append(options, withStorage(b.TempDir()))
			}
			r := newRig(b, options...).start(b)
			run(b, r, func(n int) {
				if n%1000 == 999 {
					r.clock.pass(time.Second)
				}
			})
		})
	}
}

// BenchmarkMatched is batches of 100 wanted records, each the first of a fault
// that never gets its second.
func BenchmarkMatched(b *testing.B) {
	withAndWithoutStorage(b, func(b *testing.B, r *rig, pass func(int)) {
		things := make([]string, 100)
		n := 0
		b.ReportAllocs()
		for b.Loop() {
			for i := range things {
				things[i] = fmt.Sprintf("gpu-%d-%d", n, i)
			}
			r.send(b, "test.first", things...)
			pass(n)
			n++
		}
		b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "records/s")
	})
}

// BenchmarkVerdict is one fault: two pieces of evidence in, one verdict at the
// next consumer when the second call returns.
func BenchmarkVerdict(b *testing.B) {
	withAndWithoutStorage(b, func(b *testing.B, r *rig, pass func(int)) {
		n := 0
		for b.Loop() {
			thing := fmt.Sprintf("gpu-%d", n)
			r.send(b, "test.first", thing)
			r.send(b, "test.second", thing)
			pass(n)
			n++
		}
		require.Len(b, r.next.verdicts, n)
	})
}

// BenchmarkCheckpoint is a snapshot of a full engine: the pause that it makes, and how long it
// takes beside the engine.
func BenchmarkCheckpoint(b *testing.B) {
	r := newRig(b, withStorage(b.TempDir())).start(b)
	for n := range 15_000 {
		r.send(b, "test.first", fmt.Sprint(n))
		if n < 5000 {
			r.send(b, "test.second", fmt.Sprint(n))
		}
	}
	r.detector.journal.Saved(&r.detector.mu)
	var pause time.Duration
	for b.Loop() {
		r.detector.mu.Lock()
		began := time.Now()
		r.detector.save(context.Background())
		pause += time.Since(began)
		r.detector.mu.Unlock()
		r.detector.journal.Saved(&r.detector.mu)
	}
	b.ReportMetric(float64(pause.Microseconds())/1000/float64(b.N), "pause-ms")
	bytes := 0
	eachKey(b, r.detector.journal.Client, "s/", func(value []byte) { bytes += len(value) })
	b.ReportMetric(float64(bytes), "bytes")
}
