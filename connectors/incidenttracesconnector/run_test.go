package incidenttracesconnector

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func endedRun() *history.Run {
	end := at(3600)
	return &history.Run{
		ID: "2026-11-20T14:02:11.000Z-0badcafe", Job: "llm", Trust: verdict.Proven, Began: at(0), Updated: end, Ended: &end, Outcome: history.RunFailed,
		Ranks: "0-7", RanksCount: 8, EndedRanks: "0-7", EndedCount: 8, Hosts: []string{"node-17"}, Summary: &history.Summary{Standing: 60, Causes: []history.Cause{}},
	}
}

// tellRun sends the record of a run that ended.
func (r *rig) tellRun(t *testing.T, change func(plog.LogRecord)) {
	t.Helper()
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("host.name", "node-17")
	lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	history.ToRecord(endedRun(), lr)
	if change != nil {
		change(lr)
	}
	require.NoError(t, r.ConsumeLogs(t.Context(), ld))
}

func TestARunThatEndedIsATrace(t *testing.T) {
	r := newRig(t, nil)
	r.tellRun(t, nil)
	r.clock.pass(time.Second)
	require.Len(t, r.to.took(), 1)
	spans, host := spansOf(t, r.to.took()[0])
	require.Len(t, spans, 1)
	span := spans["training.run"]
	traceID, spanID := verdict.RunSpan(endedRun().ID).IDs()
	require.Equal(t, traceID, span.TraceID(), "made of the run's id")
	require.Equal(t, spanID, span.SpanID())
	require.True(t, span.ParentSpanID().IsEmpty())
	require.Equal(t, [2]time.Time{at(0), at(3600)}, [2]time.Time{span.StartTimestamp().AsTime(), span.EndTimestamp().AsTime()})
	require.Equal(t, ptrace.StatusCodeError, span.Status().Code())
	attributes := span.Attributes().AsRaw()
	require.Equal(t, "llm", attributes["gen_ai.training.job_id"])
	require.Equal(t, endedRun().ID, attributes["gen_ai.training.run_id"])
	require.NotContains(t, attributes, history.AttrSummaryJSON)
	require.Equal(t, "node-17", host["training.run"])
}

func TestRunsThatNobodyTakesAreBoundedAndCounted(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Incidents = 3 })
	r.to.set(errors.New("busy"))
	for range 10 {
		r.tellRun(t, nil)
	}
	require.EqualValues(t, 3, r.count(t, "held"))
	require.EqualValues(t, 7, r.count(t, "lost"))
	r.tellRun(t, func(lr plog.LogRecord) { lr.Attributes().PutStr(history.AttrSummaryJSON, "{}") })
	require.EqualValues(t, 1, r.count(t, "invalid"))
}
