package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// ended is what a rank of a job leaves behind.
type ended struct {
	host, domain string
	rank, signal int64
}

func die(e *engine.Engine, at time.Duration, d ended) {
	ld := logs(1, began.Add(at), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		a := lr.Attributes()
		a.PutStr("gen_ai.training.job_id", "llama")
		if d.domain != "" {
			a.PutStr("gen_ai.training.job_domain", d.domain)
		}
		a.PutInt("gen_ai.training.rank", d.rank)
		a.PutInt("gen_ai.training.world_size", 4)
		a.PutInt("process.pid", 100+d.rank)
		a.PutStr("process.executable.name", "python")
		a.PutInt("process.exit.signal", d.signal)
		a.PutInt("process.exit.code", 0)
		a.PutStr("tracecore.trust", "proven")
	})
	ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", d.host)
	e.Logs(ld)
}

// TestAJobIsItsIDInsideItsDomain: who claims another's job accuses nobody, brings no peer
// to a death, and stops no verdict.
func TestAJobIsItsIDInsideItsDomain(t *testing.T) {
	mine, stranger := "user 1000", "user 65534"
	for name, tc := range map[string]struct {
		deaths []ended
		want   map[string]verdict.Confidence // by the host that is named
	}{
		"one job on two nodes":         {[]ended{{"a", mine, 0, 6}, {"b", mine, 1, 6}}, map[string]verdict.Confidence{"a": verdict.Full}},
		"without domains, as recorded": {[]ended{{"a", "", 0, 6}, {"b", "", 1, 6}}, map[string]verdict.Confidence{"a": verdict.Full}},
		"a stranger died first":        {[]ended{{"b", stranger, 2, 6}, {"a", mine, 0, 6}}, map[string]verdict.Confidence{"a": verdict.Partial, "b": verdict.Partial}},
		"a stranger is no peer":        {[]ended{{"a", mine, 0, 6}, {"b", stranger, 1, 6}}, map[string]verdict.Confidence{"a": verdict.Partial, "b": verdict.Partial}},
		"nobody knows whose it was":    {[]ended{{"a", mine, 0, 6}, {"b", "unknown", 1, 6}}, map[string]verdict.Confidence{"a": verdict.Partial, "b": verdict.Partial}},
		"a stranger stopped its own":   {[]ended{{"b", stranger, 1, 15}, {"a", mine, 0, 6}}, map[string]verdict.Confidence{"a": verdict.Partial}},
		"the job was being stopped":    {[]ended{{"b", mine, 1, 15}, {"a", mine, 0, 6}}, map[string]verdict.Confidence{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Options{})
			for i, d := range tc.deaths {
				die(e, time.Duration(i)*time.Second, d)
			}
			saved, err := e.Snapshot()
			require.NoError(t, err)
			require.NoError(t, e.Restore(saved), "keys are those of the rule")
			require.Zero(t, e.Stats().NotRestored)
			got := map[string]verdict.Confidence{}
			for _, v := range e.Verdicts() {
				if v.Pattern == "rank_exit" {
					got[v.Culprit["host"]] = v.Confidence
					for _, d := range tc.deaths {
						if d.host == v.Culprit["host"] {
							require.Equal(t, d.domain, v.Culprit["job_domain"])
						}
					}
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}
