package engine_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const slowestRule = `
id: 1001
name: slowest
summary: the slowest rank of a job
detector: slowest
fields: {ranks: 'attributes["others"]'}
identity: {job: 'attributes["job"]', rank: 'attributes["slowest"]'}
key: [job]
evidence:
  found: {logs: finding.slowest, shows: "rank {rank} is the slowest"}
  sure: {logs: finding.slowest, where: 'attributes["sure"] == true', shows: "three ranks were seen", absent: "a third rank"}
  death: {logs: process.exit, match: [job, rank], fields: {rank: 'attributes["rank"]'}, shows: "rank {rank} died"}
full: found and sure
partial: found
resolves:
  done: {logs: finding.slowest.done, shows: "the step is done"}
severity: warning
headline: "rank {rank} of job {job} is the slowest; {ranks} wait"
remedy: look at rank {rank}
`

// slowest finds the rank of the longest step; a step of 0 ends the fault, and
// one alone is none. It waits a second after the first record.
type slowest struct {
	Steps   map[string]int64 // rank → length
	First   int64
	Told    bool
	Changed bool
}

func (s *slowest) Observe(r *rule.Record) bool {
	rank, _ := r.Attributes.Get("rank")
	length, _ := r.Attributes.Get("length")
	s.Steps[rank.AsString()] = length.Int()
	if s.First == 0 {
		s.First = r.Time
	}
	s.Changed = true
	return true
}

func (s *slowest) Due() int64 {
	if !s.Changed {
		return 0
	}
	return s.First + int64(time.Second)
}

func (s *slowest) Decide(now int64) []rule.Finding {
	s.Changed = false
	f := rule.Finding{Event: "finding.slowest", ID: "x", Time: s.First, Last: now}
	most, others := int64(0), []any{}
	for _, rank := range []string{"0", "1", "2"} {
		if length := s.Steps[rank]; length > most {
			most = length
			f.Attributes = map[string]any{"job": "a", "slowest": rank, "sure": len(s.Steps) == 3}
		}
	}
	for i, rank := range []string{"0", "1", "2"} {
		if most > 0 && s.Steps[rank] > 0 && f.Attributes["slowest"] != rank {
			others = append(others, i)
		}
	}
	switch {
	case most == 0 && s.Told:
		return []rule.Finding{{Event: "finding.slowest.done", ID: "x", Time: now, Attributes: map[string]any{"job": "a"}}}
	case len(others) == 0 && s.Told:
		f.Gone, f.Attributes = true, map[string]any{"job": "a"}
		return []rule.Finding{f}
	case len(others) == 0:
		return nil
	}
	s.Told = true
	f.Attributes["others"] = others
	return []rule.Finding{f}
}

func (s *slowest) Snapshot() ([]byte, error) { return json.Marshal(s) }

func (s *slowest) Restore(state []byte) error {
	if string(state) == `"broken"` {
		return errors.New("broken")
	}
	return json.Unmarshal(state, s)
}

func (s *slowest) Evicted() uint64 { return 7 }

func slowestDetector() rule.Detector {
	return rule.Detector{
		Name: "slowest", Trust: verdict.Proven, Logs: []string{"step"}, Attributes: []string{"length"},
		Findings: map[string][]string{"finding.slowest": {"step"}, "finding.slowest.done": {"step"}},
		New:      func(rule.Limits) rule.Algorithm { return &slowest{Steps: map[string]int64{}} },
	}
}

func slowestEngine(t *testing.T) *engine.Engine {
	t.Helper()
	r, err := rule.Parse("mine.yaml", []byte(slowestRule))
	require.NoError(t, err)
	rules := []rule.Rule{r}
	rule.Wire(rules, []rule.Detector{slowestDetector()})
	e, err := engine.New(rules, engine.Options{MaxDelay: 2 * time.Hour})
	require.NoError(t, err)
	return e
}

// step sends records of ranks that took that long, all of one batch.
func step(e *engine.Engine, at time.Duration, lengths map[int64]int64) plog.Logs {
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr(rule.AttributeTrust, "proven")
	records := resource.ScopeLogs().AppendEmpty().LogRecords()
	for rank := range int64(3) {
		if length, ok := lengths[rank]; ok {
			lr := records.AppendEmpty()
			lr.SetEventName("step")
			lr.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(at)))
			lr.Attributes().PutInt("rank", rank)
			lr.Attributes().PutInt("length", length)
		}
	}
	return e.Logs(ld)
}

func death(e *engine.Engine, at time.Duration, rank int64) {
	ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		lr.Attributes().PutInt("rank", rank)
		lr.Attributes().PutStr("job", "a")
	})
	e.Logs(ld)
}

func names(v verdict.Verdict) []string {
	var list []string
	for _, e := range v.Evidence {
		list = append(list, e.Name)
	}
	return list
}

// A finding waits for its time, is replaced by a newer one together with all
// that rested on it, is taken back, returns, and ends.
func TestFindingsAreReplaced(t *testing.T) {
	e := slowestEngine(t)
	at := func(d time.Duration) []verdict.Verdict {
		e.Advance(began.Add(d))
		return e.Verdicts()
	}
	require.Equal(t, 2, step(e, 0, map[int64]int64{0: 5, 1: 9}).LogRecordCount(), "what a detector watches goes to the journal")
	death(e, 0, 1)
	require.Empty(t, e.Verdicts(), "it is not due yet")
	v := at(time.Second)
	require.Len(t, v, 1)
	require.Equal(t, "rank 1 of job a is the slowest; 0 wait", v[0].Headline)
	require.Equal(t, verdict.Partial, v[0].Confidence)
	require.Equal(t, []string{"found", "death"}, names(v[0]))
	require.Equal(t, []string{"a third rank"}, v[0].NotObserved)
	require.Equal(t, verdict.Ranks{0}, v[0].BlastRadius)

	step(e, 2*time.Second, map[int64]int64{2: 30})
	again := e.Verdicts()
	require.Len(t, again, 1)
	require.Equal(t, v[0].ID, again[0].ID)
	require.Equal(t, 2, again[0].Revision)
	require.Equal(t, verdict.Full, again[0].Confidence)
	require.Equal(t, "rank 2 of job a is the slowest; 0-1 wait", again[0].Headline)
	require.Equal(t, []string{"found", "sure"}, names(again[0]), "the death of rank 1 belongs to what was found before")
	require.Equal(t, verdict.Ranks{0, 1}, again[0].BlastRadius)

	step(e, 3*time.Second, map[int64]int64{0: 0, 1: 0})
	gone := e.Verdicts()
	require.Len(t, gone, 1)
	require.Equal(t, verdict.Resolved, gone[0].Status)
	require.Equal(t, "rank 2 of job a is the slowest; 0-1 wait", gone[0].Headline)
	require.Contains(t, names(gone[0]), "withdrawn")

	step(e, 4*time.Second, map[int64]int64{0: 50})
	back := e.Verdicts()
	require.Len(t, back, 1)
	require.Equal(t, verdict.Open, back[0].Status)
	require.Equal(t, v[0].ID, back[0].ID)
	require.Equal(t, "rank 0 of job a is the slowest; 2 wait", back[0].Headline)

	step(e, 5*time.Second, map[int64]int64{0: 0, 1: 0, 2: 0})
	end := e.Verdicts()
	require.Len(t, end, 1)
	require.Equal(t, verdict.Resolved, end[0].Status)
	require.Contains(t, names(end[0]), "done")
	require.EqualValues(t, 7, e.Stats().EvictedFindings)
}

// The state of a detector is part of the snapshot, its time too.
func TestDetectorsSurviveARestart(t *testing.T) {
	e := slowestEngine(t)
	step(e, 0, map[int64]int64{0: 5, 1: 9})
	saved, err := e.Snapshot()
	require.NoError(t, err)
	fresh := slowestEngine(t)
	require.NoError(t, fresh.Restore(saved))
	again, err := fresh.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(saved), string(again))
	fresh.Advance(began.Add(time.Second))
	require.Len(t, fresh.Verdicts(), 1)

	var parts map[string]any
	require.NoError(t, json.Unmarshal(saved, &parts))
	parts["detectors"] = map[string]any{"slowest proven": "broken"}
	broken, err := json.Marshal(parts)
	require.NoError(t, err)
	require.NoError(t, fresh.Restore(broken), "the faults of other patterns stay")
	require.EqualValues(t, 1, fresh.Stats().NotRestored)
}

// Findings are made by detectors only.
func TestForgedFindingsAreNotRead(t *testing.T) {
	e := slowestEngine(t)
	e.Logs(logs(1, began, func(_ int, lr plog.LogRecord) {
		lr.SetEventName("finding.slowest")
		lr.Attributes().PutStr("job", "a")
		lr.Attributes().PutStr("slowest", "3")
	}))
	require.Empty(t, e.Verdicts())
	require.EqualValues(t, 1, e.Stats().Unmatched)
}
