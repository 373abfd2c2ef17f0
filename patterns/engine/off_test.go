package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// offRules are a cause and its effect, which would end with its cause.
func offRules(t *testing.T) []rule.Rule {
	t.Helper()
	var rules []rule.Rule
	for _, text := range []string{
		"id: 1000\nname: cause\nexplains: [{pattern: effect, share: [host]}]\n",
		"id: 1001\nname: effect\n",
	} {
		name := []string{"cause", "effect"}[len(rules)]
		r, err := rule.Parse(name+".yaml", []byte(text+"summary: x\nkey: [host]\nevidence: {seen: {logs: "+name+", shows: it was seen}}\n"+
			"full: seen\nseverity: error\nheadline: \""+name+" on {host}\"\nremedy: look\n"))
		require.NoError(t, err)
		rules = append(rules, r)
	}
	return rules
}

// TestWhatASwitchedOffPatternExplainedStandsByItself: nothing says that its cause cleared.
func TestWhatASwitchedOffPatternExplainedStandsByItself(t *testing.T) {
	e, err := engine.New(offRules(t), engine.Options{})
	require.NoError(t, err)
	for i, name := range []string{"cause", "effect"} {
		ld := logs(1, began.Add(time.Duration(i)*time.Second), func(_ int, lr plog.LogRecord) {
			lr.SetEventName(name)
			lr.Attributes().PutStr("tracecore.trust", "proven")
		})
		ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", "a")
		e.Logs(ld)
	}
	told := e.Verdicts()
	require.Equal(t, verdict.Symptom, told[len(told)-1].Role)

	e.SwitchOff([]string{"cause"})
	last := map[string]verdict.Verdict{}
	for _, v := range e.Verdicts() {
		last[v.Pattern] = v
	}
	require.Equal(t, verdict.Resolved, last["cause"].Status)
	require.Equal(t, "switched_off", last["cause"].Evidence[len(last["cause"].Evidence)-1].Name)
	require.Equal(t, verdict.Open, last["effect"].Status)
	require.Equal(t, verdict.RootCause, last["effect"].Role)
	require.Len(t, e.Open(), 1)

	state, err := e.Snapshot()
	require.NoError(t, err)
	rest, err := engine.New(offRules(t)[1:], engine.Options{})
	require.NoError(t, err)
	require.NoError(t, rest.Restore(state))
	require.Zero(t, rest.Stats().NotRestored, "nothing of the other is left")
	require.Len(t, rest.Open(), 1)
}
