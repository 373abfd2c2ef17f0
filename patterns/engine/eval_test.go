package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// A value that is made of an attribute which a record lacks is no error; an error names the pattern
// and the record, and so does what lacks an attribute of the key.
func TestErrorsNameThePatternAndTheRecord(t *testing.T) {
	r, err := rule.Parse("x.yaml", []byte(`
id: 1001
name: slow
summary: something is slow
fields:
  seconds: attributes["age_ns"] / 1000000000
key: [host]
evidence:
  seen: {logs: site.slow, shows: "it takes {seconds} s"}
full: seen
severity: error
headline: "it takes [{seconds}|some] s"
remedy: [{text: "Wait."}]
`))
	require.NoError(t, err)
	e, err := New([]rule.Rule{r}, Options{})
	require.NoError(t, err)
	send := func(host string, age any) {
		ld := plog.NewLogs()
		rl := ld.ResourceLogs().AppendEmpty()
		if host != "" {
			rl.Resource().Attributes().PutStr("host.name", host)
		}
		lr := rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		lr.SetEventName("site.slow")
		lr.SetTimestamp(1)
		if age != nil {
			require.NoError(t, lr.Attributes().FromRaw(map[string]any{"age_ns": age}))
		}
		e.Logs(ld)
	}
	send("a", nil)
	require.Zero(t, e.Stats().EvalErrors)
	require.Zero(t, e.Stats().Unkeyed)
	send("a", "long")
	send("a", "longer")
	require.EqualValues(t, 2, e.Stats().EvalErrors)
	require.Contains(t, e.Stats().EvalError, "slow on site.slow: ")
	send("", int64(1))
	require.EqualValues(t, 1, e.Stats().Unkeyed)
	require.Equal(t, "slow on site.slow", e.Stats().UnkeyedBy)
}
