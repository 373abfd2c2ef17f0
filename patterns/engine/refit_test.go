package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
)

const openedRule = `
id: 1000
name: opened
summary: something is open
key: [host]
culprit: [host, gpu]
evidence: {open: {logs: opened, shows: "gpu {gpu} is open"}}
full: open
resolves: {shut: {logs: shut, shows: "it is shut"}}
severity: error
headline: "gpu {gpu} of {host} is open"
remedy: look
`

// An open verdict goes on where its rule has other fields, words and evidence after a
// reload; a rule with another key has other faults.
func TestOpenVerdictsSurviveAChangeOfTheirRule(t *testing.T) {
	for name, tc := range map[string]struct {
		old, new string
		open     int
		headline string
	}{
		"other fields first": {"key: [host]", "fields: {bay: 'attributes[\"bay\"]'}\nkey: [host]", 1, "gpu g0 of node-1 is open"},
		"other names":        {"culprit: [host, gpu]", "culprit: [host, node, gpu, job, pod]", 1, "gpu g0 of node-1 is open"},
		"other words":        {`headline: "gpu {gpu} of`, `headline: "device {gpu} of`, 1, "device g0 of node-1 is open"},
		"another key":        {"key: [host]", "key: [host, gpu]", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := blockedEngine(t, openedRule, engine.Options{})
			send := func(e *engine.Engine, event string, at time.Duration) {
				e.Logs(logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
					lr.SetEventName(event)
					lr.Attributes().PutStr("gpu.id", "g0")
				}))
			}
			send(before, "opened", 0)
			told := before.Verdicts()
			require.Len(t, told, 1)
			saved, err := before.Snapshot()
			require.NoError(t, err)
			require.Contains(t, openedRule, tc.old)
			after := blockedEngine(t, strings.Replace(openedRule, tc.old, tc.new, 1), engine.Options{})
			require.NoError(t, after.Restore(saved))
			require.Equal(t, tc.open, after.Stats().OpenVerdicts)
			if tc.open == 0 {
				require.EqualValues(t, 1, after.Stats().NotRestored)
				return
			}
			send(after, "shut", time.Second)
			after.Advance(began.Add(time.Minute))
			ended := after.Verdicts()
			require.NotEmpty(t, ended)
			last := ended[len(ended)-1]
			require.Equal(t, told[0].ID, last.ID)
			require.NotNil(t, last.Resolved)
			require.Equal(t, strings.Replace(tc.headline, "node-1", last.Culprit["host"], 1), last.Headline)
			require.Equal(t, "g0", last.Culprit["gpu"])
		})
	}
}
