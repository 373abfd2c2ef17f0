package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
)

const batch = 1000

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newEngine(tb testing.TB, opts engine.Options) *engine.Engine {
	tb.Helper()
	rules, err := patterns.Library()
	require.NoError(tb, err)
	e, err := engine.New(rules, opts)
	require.NoError(tb, err)
	return e
}

// logs makes one batch of records, a microsecond apart.
func logs(n int, at time.Time, fill func(i int, lr plog.LogRecord)) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", "node-a")
	rl.Resource().Attributes().PutStr("tracecore.trust", "proven")
	records := rl.ScopeLogs().AppendEmpty().LogRecords()
	records.EnsureCapacity(n)
	for i := range n {
		lr := records.AppendEmpty()
		lr.SetTimestamp(pcommon.NewTimestampFromTime(at.Add(time.Duration(i) * time.Microsecond)))
		fill(i, lr)
	}
	return ld
}

func xid(gpu string, code int64) func(int, plog.LogRecord) {
	return func(_ int, lr plog.LogRecord) {
		lr.SetEventName("gpu.xid")
		a := lr.Attributes()
		a.PutInt("kernelevents.xid", code)
		a.PutStr("gpu.id", gpu)
		a.PutInt("process.pid", 4242)
		a.PutInt("gen_ai.training.rank", 3)
		a.PutStr("process.executable.name", "python")
		a.PutStr("kernelevents.class", "restart_application")
		a.PutStr("kernelevents.severity", "warning")
		a.PutStr("kernelevents.remedy", "restart the application")
		a.PutBool("kernelevents.injected", false)
		a.PutStr("tracecore.trust", "proven")
		a.PutInt("kernelevents.count", 1)
	}
}

// BenchmarkUnmatched: records that no pattern watches. One operation is one record.
func BenchmarkUnmatched(b *testing.B) {
	e := newEngine(b, engine.Options{})
	ld := logs(batch, began, func(_ int, lr plog.LogRecord) {
		lr.SetEventName("application.log")
		lr.Attributes().PutStr("logger", "train")
	})
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		e.Logs(ld)
	}
	rate(b)
}

// BenchmarkWatchedButUnmatched: Xids are watched by seven pieces of evidence, and
// none wants an injected one. One operation is one record.
func BenchmarkWatchedButUnmatched(b *testing.B) {
	e := newEngine(b, engine.Options{})
	ld := logs(batch, began, func(i int, lr plog.LogRecord) {
		xid("0000:65:00.0", 43)(i, lr)
		lr.Attributes().PutBool("kernelevents.injected", true)
	})
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		e.Logs(ld)
	}
	rate(b)
	b.ReportMetric(float64(e.Stats().Matched)/float64(b.N), "wanted")
}

// BenchmarkMatched: Xid 13 with its process, each record another storm on one
// of a hundred GPUs; wanted by xid_impact.
func BenchmarkMatched(b *testing.B) { benchmarkXid(b, 13) }

func benchmarkXid(b *testing.B, code int64) {
	e := newEngine(b, engine.Options{})
	at := began
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		b.StopTimer()
		at = at.Add(50 * time.Millisecond)
		ld := logs(batch, at, func(i int, lr plog.LogRecord) {
			xid(fmt.Sprintf("0000:%02x:00.0", i%100), code)(i, lr)
			lr.Attributes().PutStr("kernelevents.fault_id", fmt.Sprint(n+i))
		})
		b.StartTimer()
		e.Logs(ld)
		e.Verdicts()
	}
	rate(b)
}

// BenchmarkVerdict: each record is a lost GPU of its own, with its verdict.
func BenchmarkVerdict(b *testing.B) {
	e := newEngine(b, engine.Options{})
	at := began
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		b.StopTimer()
		at = at.Add(50 * time.Millisecond)
		ld := logs(batch, at, func(i int, lr plog.LogRecord) { xid(fmt.Sprintf("gpu-%d", n+i), 79)(i, lr) })
		b.StartTimer()
		e.Logs(ld)
		e.Verdicts()
	}
	rate(b)
}

// BenchmarkDeaths: the ranks of one job die, eight to a machine, as NCCL's watchdogs, lost peers or a
// launcher end them. One operation is one death.
func BenchmarkDeaths(b *testing.B) {
	for name, end := range map[string]func(pcommon.Map){
		"aborts": func(a pcommon.Map) {
			a.PutInt("process.exit.signal", 6)
			a.PutInt("process.exit.code", 0)
			a.PutInt("signal.number", 6)
			a.PutStr("signal.sender.relation", "itself")
		},
		"status": func(a pcommon.Map) {
			a.PutInt("process.exit.signal", 0)
			a.PutInt("process.exit.code", 1)
		},
		"killed": func(a pcommon.Map) {
			a.PutInt("process.exit.signal", 9)
			a.PutInt("process.exit.code", 0)
			a.PutInt("signal.number", 9)
			a.PutStr("signal.sender.relation", "launcher")
		},
	} {
		b.Run(name, func(b *testing.B) {
			e := newEngine(b, engine.Options{})
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 8 {
				b.StopTimer()
				ld := logs(8, began.Add(time.Duration(n)*time.Millisecond), func(i int, lr plog.LogRecord) {
					lr.SetEventName("process.exit")
					a := lr.Attributes()
					a.PutStr("gen_ai.training.job_id", "big")
					a.PutInt("gen_ai.training.rank", int64(n+i))
					a.PutInt("process.pid", int64(1000+i))
					a.PutInt("process.start_ns", int64(1_000_000+i))
					a.PutStr("process.executable.name", "python3")
					a.PutStr("tracecore.trust", "proven")
					end(a)
				})
				ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", fmt.Sprint("node-", n/8))
				b.StartTimer()
				e.Logs(ld)
				e.Verdicts()
			}
			rate(b)
		})
	}
}

func rate(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// A million distinct GPUs that no one has: the state stays at its caps.
func TestMemoryStaysFlatUnderAFloodOfKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		code int64
		keys int
	}{"without verdicts": {13, 200_000}, "with verdicts": {79, 40_000}} {
		t.Run(name, func(t *testing.T) {
			code, keys := tc.code, tc.keys
			if testing.Short() {
				keys = 20_000
			}
			e := newEngine(t, engine.Options{Waiting: 1000, OpenVerdicts: 500})
			at, n, verdicts := began, 0, 0
			send := func(batches int) {
				for range batches {
					at = at.Add(time.Millisecond)
					e.Logs(logs(batch, at, func(i int, lr plog.LogRecord) {
						xid(fmt.Sprintf("gpu-%d", n+i), code)(i, lr)
					}))
					verdicts += len(e.Verdicts())
					n += batch
				}
			}
			send(20) // to the caps
			before := heap()
			send(keys/batch - 20)
			after := heap()
			s := e.Stats() // e is alive until here
			require.Less(t, after, before+before/2)
			require.Equal(t, uint64(keys), s.Matched)
			require.LessOrEqual(t, s.Waiting, 1000)
			require.LessOrEqual(t, s.OpenVerdicts, 500)
			if code == 79 {
				require.Equal(t, keys, verdicts)
				require.Equal(t, uint64(keys-500), s.EvictedVerdicts)
			} else {
				require.Zero(t, verdicts)
				require.Equal(t, uint64(keys-1000), s.EvictedWaiting)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
