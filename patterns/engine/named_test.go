package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// ofRank makes one record of a rank of a job, so many ranks a host.
func ofRank(event string, rank, perHost int, at time.Time) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", rank/perHost))
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetEventName(event)
	lr.SetTimestamp(pcommon.NewTimestampFromTime(at))
	a := lr.Attributes()
	a.PutStr("tracecore.trust", "proven")
	a.PutInt("process.pid", int64(1000+rank))
	a.PutStr("process.executable.name", "python")
	a.PutInt("gen_ai.training.rank", int64(rank))
	a.PutStr("gen_ai.training.job_id", "llm")
	if event == "process.exit" {
		a.PutInt("process.exit.signal", 6)
		a.PutStr("process.exit.signal_name", "SIGABRT")
		a.PutBool("process.exit.inherited_identity", false)
	} else {
		a.PutStr("gpu.id", fmt.Sprintf("0000:%02x:00.0", rank%8))
	}
	return ld
}

// Whichever rank is the first to die, the lost GPU of one of them is the cause: also where that rank is
// none of those that made the verdict, and where its mark has left because of the cap.
func TestALostGPUIsTheCauseWhicheverRankDiesFirst(t *testing.T) {
	for _, ranks := range []int{8, 200} {
		for at := 0; at < ranks; at += max(1, ranks/8) {
			t.Run(fmt.Sprint(at, " of ", ranks), func(t *testing.T) {
				e, newest := newEngine(t, engine.Options{}), map[string]verdict.Verdict{}
				e.Logs(ofRank("gpu.lost", 5, 1, began))
				order := make([]int, 0, ranks)
				for rank := range ranks {
					if rank != 5 {
						order = append(order, rank)
					}
				}
				order = append(order[:at], append([]int{5}, order[at:]...)...)
				for i, rank := range order {
					e.Logs(ofRank("process.exit", rank, 1, began.Add(5*time.Second+time.Duration(i)*400*time.Millisecond/time.Duration(ranks))))
					for _, v := range e.Verdicts() {
						newest[v.ID] = v
					}
				}
				e.Advance(began.Add(time.Minute))
				for _, v := range e.Verdicts() {
					newest[v.ID] = v
				}
				require.Len(t, newest, 2)
				for _, v := range newest {
					require.Equal(t, v.Pattern == "gpu_lost", v.Role == verdict.RootCause, v.Headline)
				}
			})
		}
	}
}

// It stays the cause when more becomes known of the deaths, whose first marks have left by then, also
// through a restart.
func TestALostGPUStaysTheCauseInALargeJob(t *testing.T) {
	for _, tc := range []struct{ late, restarted bool }{{}, {late: true}, {restarted: true}, {late: true, restarted: true}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			e, newest := newEngine(t, engine.Options{}), map[string]verdict.Verdict{}
			take := func(ld plog.Logs) {
				e.Logs(ld)
				for _, v := range e.Verdicts() {
					newest[v.ID] = v
				}
			}
			if !tc.late {
				take(ofRank("gpu.lost", 5, 1, began))
			}
			for i := range 200 {
				take(ofRank("process.exit", (i+100)%200, 1, began.Add(5*time.Second+time.Duration(i)*time.Millisecond)))
			}
			if tc.restarted {
				e = restarted(t, e)
			}
			if tc.late {
				take(ofRank("gpu.lost", 5, 1, began.Add(4*time.Second)))
			}
			if tc.restarted {
				e = restarted(t, e)
			}
			ended := ofRank("process.exit", 7, 1, began.Add(7*time.Second))
			a := ended.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes()
			a.PutInt("process.exit.signal", 15)
			a.PutStr("process.exit.signal_name", "SIGTERM")
			a.PutInt("process.pid", 5007)
			take(ended)
			e.Advance(began.Add(time.Minute))
			take(plog.NewLogs())
			require.Len(t, newest, 2)
			for _, v := range newest {
				require.Equal(t, v.Pattern == "gpu_lost", v.Role == verdict.RootCause, v.Headline)
			}
		})
	}
}

// restarted is another engine with the state of e.
func restarted(t *testing.T, e *engine.Engine) *engine.Engine {
	t.Helper()
	state, err := e.Snapshot()
	require.NoError(t, err)
	again := newEngine(t, engine.Options{})
	require.NoError(t, again.Restore(state))
	return again
}

// BenchmarkNamed: each record is the death of another rank of one job of which a verdict is open, beside
// lost GPUs of another job on its hosts. One operation is one record.
func BenchmarkNamed(b *testing.B) {
	e := newEngine(b, engine.Options{})
	for rank := range 512 {
		lost := ofRank("gpu.lost", rank, 8, began)
		a := lost.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes()
		a.PutInt("process.pid", int64(100_000+rank))
		a.PutStr("gen_ai.training.job_id", "other")
		e.Logs(lost)
	}
	e.Verdicts()
	records := make([]plog.Logs, b.N)
	for i := range records {
		records[i] = ofRank("process.exit", i%4096, 8, began.Add(5*time.Second+time.Duration(i)*time.Microsecond))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i, record := range records {
		e.Logs(record)
		if i%batch == 0 {
			e.Verdicts()
		}
	}
	rate(b)
}
