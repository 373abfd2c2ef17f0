package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// ofStart is a record of rank 3 in that start of its job, so long after began: each is a process of its own, half a second after
// the minute.
func ofStart(n int64, event string, after time.Duration, more map[string]any) plog.Logs {
	return logs(1, began.Add(after), func(_ int, lr plog.LogRecord) {
		lr.SetEventName(event)
		a := lr.Attributes()
		for key, value := range map[string]int64{
			"process.pid": 100 * n, "gen_ai.training.rank": 3, "gen_ai.training.rank_pid": 100 * n, "gen_ai.training.world_size": 1,
			"gen_ai.training.rank_start_unix_nano": began.Add(time.Duration(n-1)*time.Minute + time.Second/2).UnixNano(),
		} {
			a.PutInt(key, value)
		}
		a.PutStr("gen_ai.training.job_id", "llm")
		a.PutStr("tracecore.trust", "proven")
		for key, value := range more {
			_ = a.PutEmpty(key).FromRaw(value)
		}
	})
}

// startDies is the end of that start by a signal.
func startDies(n int64, after time.Duration, signal int64, name string) plog.Logs {
	return ofStart(n, "process.exit", after, map[string]any{"process.exit.code": 0, "process.exit.signal": signal, "process.exit.signal_name": name})
}

// said is who is told of what in the order in which it is.
func said(verdicts []verdict.Verdict) (all [][]any) {
	for _, v := range verdicts {
		all = append(all, []any{v.Pattern, v.Role, v.Status, v.Revision})
	}
	return all
}

// Each time the next start is known before the end of the last one is read. Who reads lines reads of the first two deaths, as open and
// as over; the third is a part of the loop, and was never a fault of its own. So it is after a restart between the two.
func TestAThirdDeathIsToldOnceAsAPartOfItsLoop(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		e := newEngine(t, engine.Options{})
		tell := func(ld plog.Logs) {
			e.Logs(ld)
			if restarts {
				state, err := e.Snapshot()
				require.NoError(t, err)
				e = newEngine(t, engine.Options{})
				require.NoError(t, e.Restore(state))
			}
		}
		tell(ofStart(1, "process.start", time.Second, nil))
		for n := int64(1); n <= 3; n++ {
			at := time.Duration(n) * time.Minute
			e.Advance(began.Add(at))
			tell(ofStart(n+1, "process.start", at+time.Second, nil))
			require.Empty(t, e.Verdicts())
			tell(startDies(n, at, 11, "SIGSEGV"))
			want := [][]any{{"rank_exit", verdict.RootCause, verdict.Open, 1}, {"rank_exit", verdict.RootCause, verdict.Resolved, 2}}
			if n == 3 {
				want = [][]any{
					{"crash_loop", verdict.RootCause, verdict.Open, 1},
					{"rank_exit", verdict.Symptom, verdict.Resolved, 3}, {"rank_exit", verdict.Symptom, verdict.Resolved, 3}, {"rank_exit", verdict.Symptom, verdict.Resolved, 1},
				}
			}
			verdicts := e.Verdicts()
			require.Equal(t, want, said(verdicts), "death %d", n)
			require.EqualValues(t, "3", verdicts[0].Culprit["rank"])
		}
		require.Empty(t, e.Verdicts())
	}
}

// All that a verdict says at its end it says in one revision: what was seen, how often and until when.
func TestWhatBeginsAndEndsAtOnceIsToldOnce(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(logs(2, began, xid("0000:65:00.0", 79)))
	e.Logs(logs(1, began.Add(time.Second), func(i int, lr plog.LogRecord) {
		xid("0000:65:00.0", 79)(i, lr)
		lr.SetEventName("gpu.recovered")
		lr.Attributes().PutStr("gpu.vendor", "nvidia")
	}))
	verdicts := e.Verdicts()
	require.Equal(t, [][]any{{"gpu_lost", verdict.RootCause, verdict.Resolved, 1}}, said(verdicts))
	require.Equal(t, began.Add(time.Second), verdicts[0].Resolved.UTC())
	require.EqualValues(t, 1, e.Stats().Verdicts)
}

// A rank that somebody kills, and that is started again at once, waits as any other for who else is killed. Then it is told as open.
func TestAKillWhoseJobRunsAgainWaitsForOthers(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(ofStart(1, "process.start", time.Second, nil))
	e.Advance(began.Add(time.Minute))
	e.Logs(ofStart(2, "process.start", time.Minute+550*time.Millisecond, nil))
	e.Logs(startDies(1, time.Minute+400*time.Millisecond, 9, "SIGKILL"))
	require.Empty(t, e.Verdicts())
	e.Advance(began.Add(time.Minute + 650*time.Millisecond))
	require.Equal(t, [][]any{{"rank_exit", verdict.RootCause, verdict.Open, 1}, {"rank_exit", verdict.RootCause, verdict.Resolved, 2}}, said(e.Verdicts()))
}
