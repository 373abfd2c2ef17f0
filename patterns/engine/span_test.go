package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const spanRule = `
id: 1000
name: spans
summary: a part broke
key: [host]
culprit: [host]
evidence:
  hit: {logs: hit, shows: "hit"}
  detail: {logs: detail, shows: "detail"}
full: hit
severity: error
headline: "part of {host}"
remedy: look
`

// inSpan sends one record of node-1 that was written in a span.
func inSpan(e *engine.Engine, event string, at time.Duration, trust string, trace, span byte) {
	ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
		lr.SetEventName(event)
		if trace != 0 {
			lr.SetTraceID([16]byte{15: trace})
		}
		if span != 0 {
			lr.SetSpanID([8]byte{7: span})
		}
	})
	resource := ld.ResourceLogs().At(0).Resource().Attributes()
	resource.PutStr("host.name", "node-1")
	resource.PutStr("tracecore.trust", trust)
	e.Logs(ld)
}

func span(trace, of byte) verdict.Span { return verdict.SpanOf([16]byte{15: trace}, [8]byte{7: of}) }

func TestEvidenceKeepsTheSpansOfItsRecords(t *testing.T) {
	e := blockedEngine(t, spanRule, engine.Options{})
	inSpan(e, "hit", 0, "proven", 0, 0)
	inSpan(e, "hit", time.Second, "proven", 1, 2)
	inSpan(e, "hit", 2*time.Second, "proven", 1, 2)
	inSpan(e, "hit", 3*time.Second, "proven", 3, 0)
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, []verdict.Span{span(1, 2), span(3, 0)}, verdicts[0].Evidence[0].Spans, "each once, in order of time")
	require.Equal(t, span(1, 2), verdicts[0].Span)

	saved, err := e.Snapshot()
	require.NoError(t, err)
	again := blockedEngine(t, spanRule, engine.Options{})
	require.NoError(t, again.Restore(saved))
	require.Equal(t, verdicts[0].Evidence, again.Open()[0].Evidence, "a restart keeps them")
}

func TestTheSpanOfAVerdictIsThatOfWhatItRestsOn(t *testing.T) {
	e := blockedEngine(t, spanRule, engine.Options{})
	inSpan(e, "detail", 0, "foreign", 9, 9)
	inSpan(e, "hit", time.Second, "proven", 1, 2)
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, span(1, 2), verdicts[0].Span, "a stranger's record names no trace of the verdict")

	e = blockedEngine(t, spanRule, engine.Options{})
	inSpan(e, "detail", 0, "foreign", 9, 9)
	inSpan(e, "hit", time.Second, "proven", 0, 0)
	require.Equal(t, verdict.Span{}, e.Verdicts()[0].Span)
}

// TestSpansChangeNoVerdict: but for the spans, verdicts are the same with and without.
func TestSpansChangeNoVerdict(t *testing.T) {
	tell := func(trace byte) string {
		e := blockedEngine(t, spanRule, engine.Options{})
		for i := range 20 {
			inSpan(e, "hit", time.Duration(i)*time.Millisecond, "proven", trace*byte(i), trace)
		}
		verdicts := e.Verdicts()
		for i := range verdicts {
			verdicts[i].Span = verdict.Span{}
			for j := range verdicts[i].Evidence {
				require.LessOrEqual(t, len(verdicts[i].Evidence[j].Spans), verdict.MaxSpans)
				verdicts[i].Evidence[j].Spans = nil
			}
		}
		text, err := json.Marshal(verdicts)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, tell(0), tell(1))
}

func TestTheSpanOfTheEarlierOfTwoReportsStays(t *testing.T) {
	for name, order := range map[string][]byte{"in order": {1, 2}, "out of order": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			e := blockedEngine(t, spanRule, engine.Options{})
			for _, trace := range order {
				ld := logs(1, began.Add(time.Duration(trace)*time.Second), func(_ int, lr plog.LogRecord) {
					lr.SetEventName("hit")
					lr.SetTraceID([16]byte{15: trace})
					lr.Attributes().PutStr("kernelevents.fault_id", "one storm")
				})
				e.Logs(ld)
			}
			verdicts := e.Verdicts()
			require.Len(t, verdicts, 1)
			require.Equal(t, []verdict.Span{span(1, 0)}, verdicts[0].Evidence[0].Spans)
		})
	}
}
