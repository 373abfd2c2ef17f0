package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// patient is an engine whose senders may have held their records for long.
func patient(t *testing.T) *engine.Engine {
	t.Helper()
	e := newEngine(t, engine.Options{MaxDelay: 15 * time.Minute})
	e.Advance(began)
	return e
}

// exit is the death of a rank, long before began.
func exit(before time.Duration, pid, signal int64) plog.Logs {
	return logs(1, began.Add(-before), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		for key, n := range map[string]int64{
			"process.pid": pid, "gen_ai.training.rank": pid, "process.exit.code": 0, "process.exit.signal": signal,
		} {
			lr.Attributes().PutInt(key, n)
		}
		lr.Attributes().PutStr("gen_ai.training.job_id", "held")
	})
}

func TestARecordThatWasHeldStillTellsItsFault(t *testing.T) {
	e := patient(t)
	wanted := e.Logs(logs(1, began.Add(-10*time.Minute), xid("0000:65:00.0", 79)))
	require.Equal(t, 1, wanted.LogRecordCount(), "it belongs into the journal")
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, began.Add(-10*time.Minute).UTC(), verdicts[0].Onset.UTC())
	require.Equal(t, uint64(1), e.Stats().Overdue)
	require.Zero(t, e.Stats().Late)

	e.Logs(logs(1, began.Add(-16*time.Minute), xid("0000:66:00.0", 79)))
	require.Empty(t, e.Verdicts())
	require.Equal(t, uint64(1), e.Stats().Late)
}

func TestWithoutADelayWhatIsLateDoesNotCount(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(logs(1, began.Add(-time.Minute), xid("0000:65:00.0", 79)))
	require.Empty(t, e.Verdicts())
	require.Equal(t, uint64(1), e.Stats().Late)
}

// TestHeldRecordsMeet: the deaths are older than what rank_exit remembers, and
// come one after the other, with a restart of the engine in between.
func TestHeldRecordsMeet(t *testing.T) {
	e := patient(t)
	e.Logs(exit(12*time.Minute, 1, 6))
	first := e.Verdicts()
	require.Len(t, first, 1)
	e.Advance(began.Add(10 * time.Second))
	require.Empty(t, e.Verdicts(), "it must not expire before the others had time to come")
	saved, err := e.Snapshot()
	require.NoError(t, err)
	e = patient(t)
	require.NoError(t, e.Restore(saved))
	e.Logs(exit(12*time.Minute-time.Second, 2, 6))
	second := e.Verdicts()
	require.Len(t, second, 1)
	require.Equal(t, first[0].ID, second[0].ID)
	require.Equal(t, "1", second[0].Culprit["rank"])
	require.Equal(t, verdict.Full, second[0].Confidence)
	e.Advance(began.Add(10 * time.Minute))
	require.Equal(t, verdict.Resolved, e.Verdicts()[0].Status)
}

// TestHeldRecordsRefute: a rank that was stopped first takes back the verdict, in
// whichever order both come.
func TestHeldRecordsRefute(t *testing.T) {
	e := patient(t)
	e.Logs(exit(12*time.Minute, 1, 9))
	require.Len(t, e.Verdicts(), 1)
	e.Logs(exit(12*time.Minute+10*time.Second, 2, 15))
	require.Equal(t, verdict.Resolved, e.Verdicts()[0].Status)

	e = patient(t)
	e.Logs(exit(12*time.Minute+10*time.Second, 2, 15))
	e.Logs(exit(12*time.Minute, 1, 9))
	require.Empty(t, e.Verdicts())
}

// TestWhatNeedsOrderGoesWithoutHeldRecords: that nothing followed cannot be said
// while what followed may be the next to come.
func TestWhatNeedsOrderGoesWithoutHeldRecords(t *testing.T) {
	r, err := rule.Parse("silence", []byte(`
id: 1000
name: silence
summary: nothing follows
key: [host]
within: 1m
expires: 1h
on_expiry: forget
evidence:
  start: {logs: begin, shows: it began}
  silence: {logs: [begin, answer], stays: {while: event_name == "begin", for: 10s, by: [host]}, shows: nothing answered}
full: start and silence
severity: warning
headline: "{host} is silent"
remedy: wake it
`))
	require.NoError(t, err)
	e, err := engine.New([]rule.Rule{r}, engine.Options{MaxDelay: 15 * time.Minute})
	require.NoError(t, err)
	e.Advance(began)
	e.Logs(logs(1, began.Add(-5*time.Minute), func(_ int, lr plog.LogRecord) { lr.SetEventName("begin") }))
	e.Advance(began.Add(time.Minute))
	require.Empty(t, e.Verdicts())
	require.Equal(t, uint64(1), e.Stats().Overdue, "the beginning counts, what it began is not followed")
}

func TestDetectorsGoWithoutHeldRecords(t *testing.T) {
	e := slowestEngine(t)
	e.Advance(began.Add(time.Hour))
	require.Zero(t, step(e, 0, map[int64]int64{1: 10, 2: 20}).LogRecordCount())
	require.NotZero(t, e.Stats().Late)
}
