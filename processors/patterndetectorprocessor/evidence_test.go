package patterndetectorprocessor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

// archive is a history that keeps verdicts and evidence.
type archive struct {
	shelf
	verdicts map[string]verdict.Verdict
	evidence map[string][]byte
	writes   int
	slow     time.Duration // a look takes so long at least
	keeps    time.Duration // so do verdicts
	looks    []time.Time
	looked   map[string]bool // incidents
}

func newArchive() *archive {
	return &archive{verdicts: map[string]verdict.Verdict{}, evidence: map[string][]byte{}, looked: map[string]bool{}}
}

func (a *archive) Keep(ctx context.Context, verdicts []verdict.Verdict) error {
	a.mu.Lock()
	takes := a.keeps
	a.mu.Unlock()
	time.Sleep(takes)
	if err := a.shelf.Keep(ctx, verdicts); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range verdicts {
		a.verdicts[v.ID] = v
	}
	return nil
}

func (a *archive) Recall(_ context.Context, id string) (history.Recalled, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looks, a.looked[id] = append(a.looks, time.Now()), true
	time.Sleep(a.slow)
	r := history.Recalled{Incident: id, Evidence: a.evidence[id], Room: 1 << 20}
	for _, v := range a.verdicts {
		if v.IncidentID == id {
			r.Verdicts = append(r.Verdicts, v)
		}
	}
	if len(r.Verdicts) == 0 {
		return r, history.ErrNotFound
	}
	return r, nil
}

func (a *archive) KeepEvidence(_ context.Context, id string, evidence []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.evidence[id] = evidence
	a.writes++
	return nil
}

func withArchive(a *archive) rigOption {
	return func(c *Config, r *rig) {
		withHistory(&a.shelf)(c, r)
		r.host.(hostOf)[historyID] = a
	}
}

// report is the incident as a report shows it, with its evidence.
func (a *archive) report(t *testing.T) incidentview.View {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	verdicts := slices.Collect(maps.Values(a.verdicts))
	incidents := verdict.Incidents(verdicts)
	if len(incidents) != 1 {
		return incidentview.View{}
	}
	records := incidentview.NewRecords(incidents[0])
	require.NoError(t, records.Restore(a.evidence[incidents[0][0].IncidentID]))
	return incidentview.Build(incidents[0], incidentview.Options{Now: began, Records: records})
}

// shows waits until the report of the one incident is as it should be.
func (a *archive) shows(t *testing.T, wanted func(incidentview.View) bool) incidentview.View {
	t.Helper()
	require.Eventually(t, func() bool { return wanted(a.report(t)) }, hosttest.Patience, time.Millisecond)
	return a.report(t)
}

// of makes a record of a rank of a job.
func (r *rig) of(t *testing.T, rank int, event string, attributes map[string]any) {
	t.Helper()
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", "node-17")
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(r.clock.now()))
	all := map[string]any{
		"gen_ai.training.job_id": "llm", "gen_ai.training.rank": rank, "gen_ai.training.world_size": 2, "process.pid": 40 + rank, "tracecore.trust": "proven",
		"gen_ai.training.rank_pid": 40 + rank, "gen_ai.training.rank_start_unix_nano": began.Add(-time.Hour).UnixNano(),
	}
	maps.Copy(all, attributes)
	require.NoError(t, record.Attributes().FromRaw(all))
	require.NoError(t, r.logs.ConsumeLogs(t.Context(), ld))
	r.delivered(t)
}

func (r *rig) stands(t *testing.T, rank int, hash, where string, framed bool) {
	t.Helper()
	attributes := map[string]any{"process.stack.hash": hash, "process.stack.wait_class": "collective", "process.stack.kernel_function": "futex_wait_queue"}
	if framed {
		attributes["process.stack.frames"] = []any{map[string]any{"code.function.name": where, "code.file.path": "/srv/train.py", "code.line.number": 88}}
	}
	r.of(t, rank, "process.stack", attributes)
}

// tells makes a record that no rule reads, of a moment 10 s ago.
func (r *rig) tells(t *testing.T, host, event, trust string, severity plog.SeverityNumber, text string) {
	t.Helper()
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("host.name", host)
	record := resource.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	record.SetEventName(event)
	record.SetTimestamp(pcommon.NewTimestampFromTime(r.clock.now().Add(-10 * time.Second)))
	record.SetSeverityNumber(severity)
	record.Body().SetStr(text)
	record.Attributes().PutStr("tracecore.trust", trust)
	require.NoError(t, r.logs.ConsumeLogs(t.Context(), ld))
}

func (r *rig) killed(t *testing.T, rank int) {
	t.Helper()
	r.of(t, rank, "oom.kill", map[string]any{"oomkill.constraint": "cgroup", "oomkill.cgroup": "/job", "process.executable.name": "python3"})
}

func functions(v incidentview.View) (list []string) {
	for _, s := range v.Stacks {
		for _, f := range s.Frames {
			if f.Kind == "python" {
				list = append(list, s.Ranks.Ranges+" "+f.Function)
			}
		}
	}
	return list
}

func raw(v incidentview.View) (titles []string) {
	for _, one := range v.Raw {
		titles = append(titles, one.Title)
	}
	return titles
}

// What stood around the verdicts is kept with them: also frames that were told long before,
// and what comes while the incident lasts.
func TestEvidenceIsKeptWithItsIncident(t *testing.T) {
	a, dir := newArchive(), t.TempDir()
	r := newRig(t, withStorage(dir), withArchive(a)).start(t)
	r.stands(t, 0, "beef", "train_step", true)
	r.clock.pass(2 * time.Hour)
	r.stands(t, 0, "beef", "", false)
	r.killed(t, 1)
	v := a.shows(t, func(v incidentview.View) bool { return len(v.Stacks) > 0 })
	require.Equal(t, []string{"0 train_step"}, functions(v))
	require.Contains(t, raw(v), "record oom.kill")

	// No news for an operator, and still part of the report.
	r.clock.pass(time.Second)
	r.stands(t, 1, "c0de", "save", true)
	r.clock.pass(10 * time.Second)
	v = a.shows(t, func(v incidentview.View) bool { return len(v.Stacks) == 2 })
	require.ElementsMatch(t, []string{"0 train_step", "1 save"}, functions(v))

	// Where nothing comes nothing is written.
	a.mu.Lock()
	before := a.writes
	a.mu.Unlock()
	r.clock.pass(30 * time.Second)
	r.clock.pass(30 * time.Second)
	a.mu.Lock()
	require.Equal(t, before, a.writes)
	a.mu.Unlock()
}

// A kill takes nothing that was kept, and the journal tells again what was not.
func TestEvidenceOutlivesAKill(t *testing.T) {
	a, dir := newArchive(), t.TempDir()
	a.set(context.DeadlineExceeded, nil)
	r := newRig(t, withStorage(dir), withArchive(a)).start(t)
	r.stands(t, 0, "beef", "train_step", true)
	r.killed(t, 1)
	require.Eventually(t, func() bool { return a.tries() > 0 }, hosttest.Patience, time.Millisecond)
	after := crashed(t, dir)

	second := newArchive()
	newRig(t, withStorage(after), withArchive(second)).start(t)
	v := second.shows(t, func(v incidentview.View) bool { return len(v.Stacks) > 0 })
	require.Equal(t, []string{"0 train_step"}, functions(v))

	third := newArchive() // it goes on from what was kept
	second.mu.Lock()
	third.verdicts, third.evidence = maps.Clone(second.verdicts), maps.Clone(second.evidence)
	second.mu.Unlock()
	r = newRig(t, withStorage(crashed(t, after)), withArchive(third)).start(t)
	r.clock.pass(time.Second)
	r.stands(t, 1, "c0de", "save", true)
	r.clock.pass(10 * time.Second)
	v = third.shows(t, func(v incidentview.View) bool { return len(v.Stacks) == 2 })
	require.ElementsMatch(t, []string{"0 train_step", "1 save"}, functions(v))
}

// What is near an incident stays with it when the agent is killed, and what comes later is added.
func TestWhatIsNearOutlivesAKill(t *testing.T) {
	first, dir := newArchive(), t.TempDir()
	r := newRig(t, withStorage(dir), withArchive(first)).start(t)
	r.tells(t, "node-17", "gpu.clock_change", "proven", plog.SeverityNumberWarn, "its clock fell")
	r.killed(t, 1)
	first.shows(t, func(v incidentview.View) bool { return len(v.Near) == 1 })

	second := newArchive()
	first.mu.Lock()
	second.verdicts, second.evidence = maps.Clone(first.verdicts), maps.Clone(first.evidence)
	first.mu.Unlock()
	r = newRig(t, withStorage(crashed(t, dir)), withArchive(second)).start(t)
	r.tells(t, "node-17", "", "foreign", plog.SeverityNumberError, "disk sda is slow")
	r.stands(t, 0, "beef", "train_step", true)
	r.clock.pass(10 * time.Second)
	v := second.shows(t, func(v incidentview.View) bool { return len(v.Stacks) > 0 })
	var texts []string
	for _, one := range v.Near {
		texts = append(texts, one.Text)
	}
	require.ElementsMatch(t, []string{"its clock fell", "disk sda is slow"}, texts)
}

// What came in the minute before a stop stands near an incident after the next start. What is
// older does not, nor does what cannot be read.
func TestWhatIsNearOutlivesAStop(t *testing.T) {
	a, dir := newArchive(), t.TempDir()
	r := newRig(t, withStorage(dir), withArchive(newArchive())).start(t)
	r.tells(t, "node-17", "gpu.clock_change", "proven", plog.SeverityNumberWarn, "long ago")
	r.clock.pass(2 * incidentview.NearSpan)
	r.tells(t, "node-17", "gpu.clock_change", "proven", plog.SeverityNumberWarn, "its clock fell")
	r.tells(t, "node-2", "gpu.clock_change", "proven", plog.SeverityNumberWarn, "elsewhere")
	now := r.clock.now()
	r.stop(t)

	r = newRig(t, withStorage(dir), withArchive(a))
	r.clock.time = now
	r.start(t)
	r.killed(t, 1)
	v := a.shows(t, func(v incidentview.View) bool { return len(v.Near) > 0 })
	require.Len(t, v.Near, 1)
	require.Equal(t, "its clock fell", v.Near[0].Text)
	require.NoError(t, r.detector.journal.Client.Batch(t.Context(), storage.SetOperation(keyNear, []byte("no record"))))
	damaged := newRig(t, withStorage(crashed(t, dir)), withArchive(newArchive())).start(t)
	require.Zero(t, damaged.detector.keeping.gathering.book.NearSince(time.Time{}).ResourceLogs().Len())
	require.Len(t, damaged.said.FilterMessageSnippet("near an incident").All(), 1)
}

// A burst of incidents does not take the processor away from what comes: the evidence of each
// waits, and at a stop none is left.
func TestEvidenceOfABurstTakesATenthOfACore(t *testing.T) {
	a := newArchive()
	a.slow = 5 * time.Millisecond
	r := newRig(t, withArchive(a)).start(t)
	const incidents = 12
	for i := range incidents {
		r.fault(t, fmt.Sprint("gpu-", i))
	}
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.looks) > 2
	}, hosttest.Patience, time.Millisecond)
	r.stop(t)
	require.Len(t, a.looked, incidents, "at a stop nothing rests")
	require.GreaterOrEqual(t, a.looks[1].Sub(a.looks[0]), 10*a.slow)
	require.GreaterOrEqual(t, a.looks[2].Sub(a.looks[1]), 10*a.slow)
}

// Verdicts that come faster than the history takes them leave evidence its turn.
func TestVerdictsWithoutEndLeaveEvidenceItsTurn(t *testing.T) {
	a := newArchive()
	a.keeps = 20 * time.Millisecond
	r := newRig(t, withArchive(a)).start(t)
	looked := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.looked)
	}
	for i, kept := 0, 0; looked() == 0; i++ {
		require.Less(t, kept, 20, "while they come")
		kept = a.tries()
		r.fault(t, fmt.Sprint("gpu-", i))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keeps = 0
}

// What no rule reads stands near the verdict about what it shares something with: what
// tracecore's own receivers tell, and warnings of strangers. The journal has none of it, and a
// flood has its share of each second.
func TestWhatNoRuleReadsIsNear(t *testing.T) {
	a := newArchive()
	r := newRig(t, withStorage(t.TempDir()), withArchive(a)).start(t)
	tell := func(host, event, trust string, severity plog.SeverityNumber, text string) {
		r.tells(t, host, event, trust, severity, text)
	}
	tell("node-17", "gpu.clock_change", "proven", plog.SeverityNumberWarn, "its clock fell")
	tell("node-17", "", "foreign", plog.SeverityNumberError, "disk sda is slow")
	tell("node-17", "", "foreign", plog.SeverityNumberUnspecified, "step 7 done")
	tell("node-2", "gpu.clock_change", "proven", plog.SeverityNumberWarn, "elsewhere")
	for n := range 100 {
		tell("node-3", "", "foreign", plog.SeverityNumberError, fmt.Sprint("flood ", n))
	}
	tell("node-3", "gpu.clock_change", "proven", plog.SeverityNumberWarn, strings.Repeat("x", 2*mostNearSize))
	r.killed(t, 1)
	v := a.shows(t, func(v incidentview.View) bool { return len(v.Near) > 0 })
	var texts []string
	for _, one := range v.Near {
		texts = append(texts, one.Text)
	}
	require.ElementsMatch(t, []string{"its clock fell", "disk sda is slow"}, texts)
	metadatatest.AssertEqualProcessorPatterndetectorNearCrowded(t, r.telemetry, []metricdata.DataPoint[int64]{{Value: 100 - mostNearHost + 1}}, metricdatatest.IgnoreTimestamp())
}

// A history that keeps verdicts alone costs nothing more.
func TestWithoutEvidenceNothingIsHeld(t *testing.T) {
	r := newRig(t, withHistory(&shelf{})).start(t)
	r.fault(t, "gpu-0")
	require.Nil(t, r.detector.keeping.gathering.book)
}
