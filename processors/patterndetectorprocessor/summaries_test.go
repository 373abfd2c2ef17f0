package patterndetectorprocessor

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadatatest"
)

// summed are the summaries that the next consumer has got.
func (d *downstream) summed() []history.Run {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs
}

func TestARunThatEndedIsToldOf(t *testing.T) {
	end := began.Add(2 * time.Minute)
	run := history.Run{ID: "r1", Job: "llm", Trust: verdict.Proven, Began: began, Updated: end, Ended: &end, Outcome: history.RunFailed, Ranks: "0-1", RanksCount: 2, EndedRanks: "0-1", EndedCount: 2, Hosts: []string{"node-1"}}
	run.Summary = history.Summarize(&run, []history.Stood{{From: began, To: began.Add(30 * time.Second), Pattern: "fuse_stall"}}, 1, nil)
	s := &shelf{ended: []history.Run{run}}
	r := newRig(t, withStorage(t.TempDir()), withHistory(s))
	r.next.set(errors.New("backend is down"))
	r.start(t)
	require.Eventually(t, func() bool {
		r.clock.pass(time.Second) // the first look may come before the start is over
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.refusals > 0
	}, hosttest.Patience, time.Millisecond)
	require.Empty(t, r.next.summed())
	r.next.set(nil)
	require.Eventually(t, func() bool {
		r.clock.pass(time.Second)
		return len(r.next.summed()) > 0
	}, hosttest.Patience, time.Millisecond)
	r.clock.pass(time.Minute)
	require.Equal(t, []history.Run{run}, r.next.summed(), "once")
	require.Eventually(t, func() bool { // what was told is counted after it, this last
		_, err := r.telemetry.GetMetric("otelcol_processor_patterndetector_runs_lost")
		return err == nil
	}, hosttest.Patience, time.Millisecond)
	outcome := attribute.NewSet(attribute.String("outcome", "failed"))
	cause := attribute.NewSet(attribute.String("pattern", "fuse_stall"))
	metadatatest.AssertEqualProcessorPatterndetectorRunsEnded(t, r.telemetry, []metricdata.DataPoint[int64]{{Value: 1, Attributes: outcome}}, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	metadatatest.AssertEqualProcessorPatterndetectorRunsMoving(t, r.telemetry, []metricdata.DataPoint[float64]{{Value: 90}}, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	metadatatest.AssertEqualProcessorPatterndetectorRunsStanding(t, r.telemetry, []metricdata.DataPoint[float64]{{Value: 30, Attributes: cause}}, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
	metadatatest.AssertEqualProcessorPatterndetectorRunsLost(t, r.telemetry, []metricdata.DataPoint[float64]{{Value: 60, Attributes: cause}}, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
}

// What ranks said before a kill, and the history had not committed, is handed over again from
// the journal.
func TestRanksSeenBeforeAKillAreHandedOver(t *testing.T) {
	dir := t.TempDir()
	refusing := &shelf{refuse: errors.New("busy")}
	r := newRig(t, withStorage(dir), withHistory(refusing)).start(t)
	r.ranks(t)
	r.handsOver(t, refusing)

	s := &shelf{}
	newRig(t, withStorage(crashed(t, dir)), withHistory(s)).start(t).handsOver(t, s)
	require.Equal(t, refusing.sighted(), s.sighted())
}

// handsOver waits until a history was shown the begin and the end of a rank.
func (r *rig) handsOver(t *testing.T, s *shelf) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.clock.pass(time.Second)
		return len(s.sighted()) == 2
	}, hosttest.Patience, time.Millisecond)
}

// ranks sends the begin and the end of a rank.
func (r *rig) ranks(t *testing.T) {
	t.Helper()
	for _, event := range []string{"process.start", "process.exit"} {
		ld := records(r.clock.now(), event, "x")
		err := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().FromRaw(map[string]any{
			"gen_ai.training.job_id": "llm", "gen_ai.training.rank": 0, "gen_ai.training.rank_pid": 40, "gen_ai.training.rank_start_unix_nano": began.UnixNano(),
			"process.pid": 40, "process.exit.code": 0, "tracecore.trust": "proven",
		})
		require.NoError(t, err)
		require.NoError(t, r.logs.ConsumeLogs(t.Context(), ld))
	}
}

func (s *shelf) sighted() []history.Sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ranks)
}
