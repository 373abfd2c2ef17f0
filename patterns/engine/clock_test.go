package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// hitOn is a record of a machine whose times were corrected by so many seconds.
func hitOn(host string, at time.Duration, corrected float64) plog.Logs {
	ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) { lr.SetEventName("hit") })
	resource := ld.ResourceLogs().At(0).Resource().Attributes()
	resource.PutStr("host.name", host)
	resource.PutStr("tracecore.trust", "proven")
	if corrected != 0 {
		resource.PutDouble(rule.AttributeCorrected, corrected)
	}
	return ld
}

func TestAVerdictSaysThatTimesOfItsMachineAreCorrected(t *testing.T) {
	const behind = "the exact times of node-1: its clock is 30s behind, and they are corrected by that"
	for name, tt := range map[string]struct {
		told []plog.Logs
		want []string
	}{
		"behind":          {[]plog.Logs{hitOn("node-1", 0, 30)}, []string{behind}},
		"ahead":           {[]plog.Logs{hitOn("node-1", 0, -30)}, []string{"the exact times of node-1: its clock is 30s ahead, and they are corrected by that"}},
		"right":           {[]plog.Logs{hitOn("node-1", 0, 0)}, nil},
		"another machine": {[]plog.Logs{hitOn("node-2", 0, 30), hitOn("node-1", time.Second, 0)}, nil},
		"it was set":      {[]plog.Logs{hitOn("node-1", 0, 30), hitOn("node-1", time.Second, 0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := blockedEngine(t, newestRule, engine.Options{})
			for _, ld := range tt.told {
				e.Logs(ld)
			}
			require.Equal(t, tt.want, notSeen(e))

			snapshot, err := e.Snapshot()
			require.NoError(t, err)
			again := blockedEngine(t, newestRule, engine.Options{})
			require.NoError(t, again.Restore(snapshot))
			inSpan(again, "now", 2*time.Second, "proven", 0, 0)
			require.Nil(t, notSeen(again), "the newest record is of a clock that is right")
		})
	}
}

// notSeen is what the newest verdict about node-1 did not see.
func notSeen(e *engine.Engine) (texts []string) {
	for _, v := range e.Verdicts() {
		if v.Culprit["host"] == "node-1" {
			texts = v.NotObserved
		}
	}
	return texts
}

func TestThatTimesAreCorrectedOutlivesARestart(t *testing.T) {
	e := blockedEngine(t, newestRule, engine.Options{})
	e.Logs(hitOn("node-1", 0, 30))
	require.Len(t, notSeen(e), 1)
	snapshot, err := e.Snapshot()
	require.NoError(t, err)
	again := blockedEngine(t, newestRule, engine.Options{})
	require.NoError(t, again.Restore(snapshot))
	inSpan(again, "hit", time.Second, "foreign", 0, 0) // of less trust: it says nothing of the clock
	again.Logs(hitOn("node-2", 2*time.Second, 0))
	saved, err := again.Save()
	require.NoError(t, err)
	require.Equal(t, map[string]time.Duration{"node-1": 30 * time.Second}, saved.State.Clocks)
}
