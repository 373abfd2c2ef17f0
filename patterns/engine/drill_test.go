package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// TestAVerdictIsADrillOnlyIfAllItsEvidenceIs, over a restart too. The name of the job says
// nothing.
func TestAVerdictIsADrillOnlyIfAllItsEvidenceIs(t *testing.T) {
	const rule = `
evidence: {open: {logs: opened, shows: "open"}}
full: open
resolves: {shut: {logs: shut, shows: "shut"}}`
	real := func(lr plog.LogRecord) {}
	drill := func(lr plog.LogRecord) { lr.Attributes().PutBool("tracecore.drill", true) }
	word := func(lr plog.LogRecord) { lr.Attributes().PutStr("tracecore.drill", "true") }
	for name, tc := range map[string]struct {
		records []func(plog.LogRecord)
		want    bool
	}{
		"a drill":                    {[]func(plog.LogRecord){drill, drill}, true},
		"only called one":            {[]func(plog.LogRecord){real}, false},
		"a word is no proof":         {[]func(plog.LogRecord){word}, false},
		"a real fault in a drill":    {[]func(plog.LogRecord){drill, real}, false},
		"a drill in a real fault":    {[]func(plog.LogRecord){real, drill}, false},
		"a real one that was folded": {append([]func(plog.LogRecord){drill, real}, repeat(drill, 100)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			e := blockedEngine(t, fmt.Sprintf(fairRule, rule), engine.Options{Marks: 8})
			var last verdict.Verdict
			take := func() {
				for _, v := range e.Verdicts() {
					last = v
				}
			}
			send := func(event string, at time.Duration, fill func(plog.LogRecord)) {
				e.Logs(logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
					lr.SetEventName(event)
					lr.Attributes().PutStr("gen_ai.training.job_id", "tracecore-drill")
					fill(lr)
				}))
			}
			for i, fill := range tc.records {
				send("opened", time.Duration(i)*time.Millisecond, fill)
				take()
			}
			e.Advance(began.Add(time.Minute))
			take()
			require.Equal(t, tc.want, last.Drill)

			saved, err := e.Snapshot()
			require.NoError(t, err)
			e = blockedEngine(t, fmt.Sprintf(fairRule, rule), engine.Options{Marks: 8})
			require.NoError(t, e.Restore(saved))
			send("shut", time.Minute, drill)
			take()
			require.Equal(t, verdict.Resolved, last.Status)
			require.Equal(t, tc.want, last.Drill)
		})
	}
}

func repeat[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}
