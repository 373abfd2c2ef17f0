package verdicts

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func lost() verdict.Verdict {
	onset := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	return verdict.Verdict{
		ID: "a", IncidentID: "inc-a", PatternID: 18, Pattern: "gpu_lost", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full,
		Trust: verdict.Proven, Severity: verdict.Critical, Revision: 1, Onset: onset, Updated: onset, Headline: "GPU a has fallen off the bus",
	}
}

func records(v verdict.Verdict, change func(plog.LogRecord)) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr(nodeName, "gpu-17")
	list := rl.ScopeLogs().AppendEmpty().LogRecords()
	list.AppendEmpty().Body().SetStr("an ordinary line")
	record := list.AppendEmpty()
	verdict.ToRecord(v, record)
	change(record)
	return ld
}

// The queue of an exporter writes and reads batches: nothing that a record says is lost,
// and nothing is trusted more.
func TestWhatARecordSaysIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(plog.LogRecord)
		want   func(*Found)
	}{
		"as it came":         {func(plog.LogRecord) {}, func(*Found) {}},
		"a drill":            {func(r plog.LogRecord) { r.Attributes().PutBool(verdict.AttrDrill, true) }, func(f *Found) { f.Drill = true }},
		"a drill, as a text": {func(r plog.LogRecord) { r.Attributes().PutStr(verdict.AttrDrill, "true") }, func(*Found) {}},
		"told again":         {func(r plog.LogRecord) { r.Attributes().PutBool(verdict.AttrRepeated, true) }, func(f *Found) { f.Repeated = true }},
		"claimed":            {func(r plog.LogRecord) { r.Attributes().PutStr(verdict.AttrTrust, "claimed") }, func(f *Found) { f.Proven = false }},
		"of no trust":        {func(r plog.LogRecord) { r.Attributes().Remove(verdict.AttrTrust) }, func(f *Found) { f.Proven = false }},
	} {
		t.Run(name, func(t *testing.T) {
			want := Found{Verdict: lost(), On: "gpu-17", Proven: true}
			want.Culprit, want.Evidence = map[string]string{}, []verdict.Evidence{}
			tt.want(&want)
			ld := records(lost(), tt.change)
			for range 2 {
				all := Read(ld, func() { require.Fail(t, "invalid") })
				require.Equal(t, []Found{want}, all)
				ld = Write(all)
			}
		})
	}
}

// sink is an exporter that keeps what it is given.
type sink struct {
	component.StartFunc
	component.ShutdownFunc
	consumertest.LogsSink
}

func TestNothingButVerdictsEntersAQueue(t *testing.T) {
	next, counted := &sink{}, map[string]int{}
	turns := &Turns{Count: func(_ context.Context, outcome string) { counted[outcome]++ }, Wait: func(error) {}, Now: time.Now}
	only := &only{next, turns}
	require.NoError(t, only.ConsumeLogs(t.Context(), records(lost(), func(r plog.LogRecord) { r.Attributes().PutStr(verdict.AttrJSON, "{") })))
	require.Empty(t, next.AllLogs())
	require.Equal(t, map[string]int{OutcomeInvalid: 1}, counted)
	require.NoError(t, only.ConsumeLogs(t.Context(), records(lost(), func(plog.LogRecord) {})))
	require.Equal(t, 1, next.LogRecordCount(), "without the ordinary line")

	again := records(lost(), func(r plog.LogRecord) { r.Attributes().PutBool(verdict.AttrRepeated, true) })
	require.NoError(t, only.ConsumeLogs(t.Context(), again))
	require.Equal(t, 2, next.LogRecordCount())
	turns.wait(errAway)
	require.NoError(t, only.ConsumeLogs(t.Context(), again))
	require.NoError(t, only.ConsumeLogs(t.Context(), records(lost(), func(plog.LogRecord) {})))
	require.Equal(t, 3, next.LogRecordCount(), "what says nothing new fills no queue whose receiver is away")
}
