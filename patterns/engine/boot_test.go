package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
)

// TestAVerdictSaysInWhichBootItsNewestEvidenceWasSeen. What is trusted
// less than the verdict, is about another host, or says no boot, changes nothing.
func TestAVerdictSaysInWhichBootItsNewestEvidenceWasSeen(t *testing.T) {
	const rule = `
id: 1000
name: opened
summary: a part broke
key: job
culprit: [host, job]
evidence: {open: {logs: opened, shows: "open"}}
full: open
severity: error
headline: "part of {job} on {host}"
remedy: look
`
	type seen struct{ host, boot, trust string }
	for name, tc := range map[string]struct {
		records []seen
		want    string
	}{
		"one boot":          {[]seen{{"a", "one", "proven"}, {"a", "one", "proven"}}, "one"},
		"the newest":        {[]seen{{"a", "one", "proven"}, {"a", "two", "proven"}}, "two"},
		"a claim of a boot": {[]seen{{"a", "one", "proven"}, {"a", "two", "claimed"}}, "one"},
		"no boot was said":  {[]seen{{"a", "one", "proven"}, {"a", "", "proven"}}, "one"},
		"of another host":   {[]seen{{"a", "one", "proven"}, {"b", "two", "proven"}}, "one"},
		"nobody says":       {[]seen{{"a", "", "proven"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := blockedEngine(t, rule, engine.Options{Marks: 8})
			boot, told := "", false
			take := func() {
				for _, v := range e.Verdicts() {
					boot, told = v.Boot, true
				}
			}
			for i, s := range tc.records {
				ld := logs(1, began.Add(time.Duration(i)*time.Second), func(_ int, lr plog.LogRecord) {
					lr.SetEventName("opened")
					lr.Attributes().PutStr("tracecore.trust", s.trust)
					lr.Attributes().PutStr("gen_ai.training.job_id", "job")
				})
				resource := ld.ResourceLogs().At(0).Resource().Attributes()
				resource.PutStr("host.name", s.host)
				if s.boot != "" {
					resource.PutStr("host.boot.id", s.boot)
				}
				e.Logs(ld)
				take()
			}
			e.Advance(began.Add(time.Minute))
			take()
			require.True(t, told)
			require.Equal(t, tc.want, boot)
		})
	}
}
