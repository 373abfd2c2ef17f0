package patterndetectorprocessor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/metadata"
)

const stepRule = `
id: 1001
name: stepped
summary: a rank broke
declares: {events: {test.hit: this test, test.well: this test}}
key: [host, job]
culprit: [host, job, rank]
evidence:
  hit: {logs: test.hit, shows: "hit"}
resolves:
  well: {logs: test.well, shows: "well"}
full: hit
trust: {full: claimed}
severity: error
headline: "rank {rank}"
remedy: look
`

// newStepRig is a detector in a traces pipeline, too.
func newStepRig(t testing.TB, options ...rigOption) (*rig, *tracesProcessor, *consumertest.TracesSink) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stepped.yaml"), []byte(stepRule), 0o600))
	options = append(options, withConfig(func(c *Config) { c.Rules = []string{dir} }))
	r := newRig(t, options...)
	sink := &consumertest.TracesSink{}
	traces, err := r.factory.CreateTraces(t.Context(), processortest.NewNopSettings(metadata.Type), r.detector.config, sink)
	require.NoError(t, err)
	require.NoError(t, traces.Start(t.Context(), r.host))
	t.Cleanup(func() { require.NoError(t, traces.Shutdown(context.Background())) })
	return r.start(t), traces.(*tracesProcessor), sink
}

// stepSpan is a step of a rank of job j, begun at some time after the test did.
func stepSpan(host string, rank int64, id byte, begin, end time.Duration) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("host.name", host)
	rs.Resource().Attributes().PutStr("tracecore.trust", "foreign")
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("training.step")
	span.SetTraceID(pcommon.TraceID{15: id})
	span.SetSpanID(pcommon.SpanID{7: id})
	span.SetStartTimestamp(pcommon.NewTimestampFromTime(began.Add(begin)))
	span.SetEndTimestamp(pcommon.NewTimestampFromTime(began.Add(end)))
	span.Attributes().PutInt("gen_ai.training.rank", rank)
	span.Attributes().PutStr("gen_ai.training.job_id", "j")
	return td
}

// stepBegin is the record with which such a step begins.
func stepBegin(host string, rank int64, id byte, begin time.Duration) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", host)
	rl.Resource().Attributes().PutStr("tracecore.trust", "foreign")
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	lr.SetEventName("training.step.begin")
	lr.SetTraceID(pcommon.TraceID{15: id})
	lr.SetSpanID(pcommon.SpanID{7: id})
	lr.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(begin)))
	lr.Attributes().PutInt("gen_ai.training.rank", rank)
	lr.Attributes().PutStr("gen_ai.training.job_id", "j")
	return ld
}

// rankRecord is a record about a rank of job j on node-17.
func rankRecord(r *rig, event string, rank int64, more func(plog.LogRecord)) plog.Logs {
	ld := records(r.clock.now(), event, "x")
	lr := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	lr.Attributes().PutInt("gen_ai.training.rank", rank)
	lr.Attributes().PutStr("gen_ai.training.job_id", "j")
	if more != nil {
		more(lr)
	}
	return ld
}

func (r *rig) tell(t *testing.T, ld plog.Logs) {
	t.Helper()
	require.NoError(t, r.logs.ConsumeLogs(t.Context(), ld))
	r.delivered(t)
}

func (r *rig) last(t *testing.T) verdict.Verdict {
	t.Helper()
	r.next.mu.Lock()
	defer r.next.mu.Unlock()
	require.NotEmpty(t, r.next.verdicts)
	return r.next.verdicts[len(r.next.verdicts)-1]
}

// idsOf are those that a stranger told.
func idsOf(id byte) verdict.Span {
	s := verdict.SpanOf(pcommon.TraceID{15: id}, pcommon.SpanID{7: id})
	s.Claimed = true
	return s
}

func TestAVerdictIsInTheStepOfItsRank(t *testing.T) {
	r, traces, sink := newStepRig(t)
	require.NoError(t, traces.ConsumeTraces(t.Context(), stepSpan("node-17", 3, 1, -20*time.Second, -time.Second)))
	require.Equal(t, 1, sink.SpanCount(), "spans pass on")
	r.tell(t, stepBegin("node-17", 3, 2, -time.Millisecond)) // it hangs: no span of it comes
	r.tell(t, rankRecord(r, "test.hit", 3, nil))
	require.Equal(t, idsOf(2), r.last(t).Span)
	record := r.next.batches[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	require.Equal(t, pcommon.TraceID{15: 2}, record.TraceID())
	require.Equal(t, pcommon.SpanID{7: 2}, record.SpanID())

	for i := range byte(100) { // the book has forgotten that step long ago
		require.NoError(t, traces.ConsumeTraces(t.Context(), stepSpan("node-17", 3, 10+i, time.Duration(i)*time.Minute, time.Duration(i)*time.Minute+time.Second)))
	}
	r.clock.pass(time.Hour)
	r.tell(t, rankRecord(r, "test.well", 3, nil))
	require.Equal(t, verdict.Resolved, r.last(t).Status)
	require.Equal(t, idsOf(2), r.last(t).Span, "the end of a verdict is where its begin was")
	require.Empty(t, r.detector.steps.placed)
}

func TestSpansOfOtherRanksAreLinked(t *testing.T) {
	r, traces, _ := newStepRig(t)
	for rank := range int64(40) {
		host := "node-17"
		if rank == 5 {
			host = "node-99" // where the kernel shows no rank of this job
		}
		require.NoError(t, traces.ConsumeTraces(t.Context(), stepSpan(host, rank, byte(rank+1), -time.Second, time.Second)))
		r.tell(t, rankRecord(r, "process.start", rank, func(lr plog.LogRecord) {
			lr.Attributes().PutStr("tracecore.trust", "proven")
			lr.Attributes().PutInt("gen_ai.training.rank_pid", 1000+rank)
			lr.Attributes().PutInt("gen_ai.training.rank_start_unix_nano", began.Add(-time.Minute).UnixNano())
		}))
		r.tell(t, rankRecord(r, "test.hit", rank, nil))
	}
	r.clock.pass(time.Minute)
	v := r.last(t)
	require.Equal(t, idsOf(1), v.Span, "rank 0 is named")
	require.Len(t, v.RankSpans, verdict.MaxRankSpans)
	for _, s := range v.RankSpans {
		require.NotEqual(t, 0, s.Rank, "it is the verdict's own")
		require.NotEqual(t, 5, s.Rank, "a stranger on another machine speaks of no rank of this job")
		require.Equal(t, idsOf(byte(s.Rank+1)), s.Span())
	}
}

// TestAStrangersSpansChangeNoJudgement: whatever spans come, verdicts differ in their ids
// at most, and nobody on another machine gives them any.
func TestAStrangersSpansChangeNoJudgement(t *testing.T) {
	judge := func(spans ...ptrace.Traces) verdict.Verdict {
		r, traces, _ := newStepRig(t)
		for _, td := range spans {
			require.NoError(t, traces.ConsumeTraces(t.Context(), td))
		}
		r.tell(t, rankRecord(r, "test.hit", 3, nil))
		return r.last(t)
	}
	plain := judge()
	require.Equal(t, plain, judge(stepSpan("node-2", 3, 1, -time.Hour, time.Hour)), "from another machine")
	require.Equal(t, plain, judge(stepSpan("address 10.0.0.7", 3, 1, -time.Hour, time.Hour)), "from nobody knows where")
	there := judge(stepSpan("node-17", 3, 1, -time.Hour, time.Hour))
	require.True(t, there.Span.Known())
	there.Span = verdict.Span{}
	require.Equal(t, plain, there, "from the machine of the rank: its ids alone")
}

func TestStepsAreCounted(t *testing.T) {
	r, traces, _ := newStepRig(t)
	require.NoError(t, traces.ConsumeTraces(t.Context(), stepSpan("node-17", 3, 1, 0, time.Second)))
	require.NoError(t, traces.ConsumeTraces(t.Context(), stepSpan("", 3, 2, 0, time.Second)))
	require.EqualValues(t, 1, r.number(t, "otelcol_processor_patterndetector_steps", "step", "taken"))
	require.EqualValues(t, 1, r.number(t, "otelcol_processor_patterndetector_steps", "step", "unplaced"))
	require.EqualValues(t, 1, r.number(t, "otelcol_processor_patterndetector_held", "state", "steps"))
}

func TestWithoutATracesPipelineNoStepsAreFollowed(t *testing.T) {
	r := newRig(t).start(t)
	r.tell(t, stepBegin("node-17", 3, 2, 0))
	require.Nil(t, r.detector.steps)
}

// number is a counter or a gauge under one attribute value.
func (r *rig) number(t *testing.T, name, key, value string) int64 {
	t.Helper()
	m, err := r.telemetry.GetMetric(name)
	require.NoError(t, err)
	var points []metricdata.DataPoint[int64]
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		points = data.DataPoints
	case metricdata.Gauge[int64]:
		points = data.DataPoints
	}
	for _, p := range points {
		if v, ok := p.Attributes.Value(attribute.Key(key)); ok && v.AsString() == value {
			return p.Value
		}
	}
	return -1
}
