package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const newestRule = `
id: 1000
name: newest
summary: a part broke
key: [host]
culprit: [host]
evidence:
  hit: {logs: hit, shows: "hit"}
  now: {logs: now, match: [host], newest: true, shows: "how it is now"}
full: hit
resolves:
  calm: {logs: calm, match: [host], shows: "it is calm"}
severity: error
headline: "part of {host}[if now:, and how it is now]"
remedy: look
`

// TestHowAThingIsAfterTheEndChangesNothing: a verdict that is over gets no revision of it.
func TestHowAThingIsAfterTheEndChangesNothing(t *testing.T) {
	e := blockedEngine(t, newestRule, engine.Options{})
	inSpan(e, "hit", 0, "proven", 0, 0)
	inSpan(e, "now", time.Second, "proven", 0, 0)
	told := e.Verdicts()
	require.Len(t, told, 1)
	require.Equal(t, "part of node-1, and how it is now", told[0].Headline)
	inSpan(e, "calm", 2*time.Second, "proven", 0, 0)
	told = e.Verdicts()
	require.Len(t, told, 1)
	require.Equal(t, verdict.Resolved, told[0].Status)
	for i := range 5 {
		at := time.Duration(3+i) * time.Second
		e.Advance(began.Add(at))
		inSpan(e, "now", at, "proven", 0, 0)
		require.Empty(t, e.Verdicts())
	}
	inSpan(e, "hit", 20*time.Second, "proven", 0, 0)
	told = e.Verdicts()
	require.Len(t, told, 1, "another fault")
	require.Equal(t, verdict.Open, told[0].Status)
}
