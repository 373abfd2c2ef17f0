package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// port is a port of node-a, so long after began: active, or down for a minute.
func port(after time.Duration, device, state string) plog.Logs {
	down := map[string]time.Duration{"down": time.Minute}[state]
	ld := logs(1, began.Add(after), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("network.rdma.port")
		a := lr.Attributes()
		for key, text := range map[string]string{
			"network.rdma.device": device, "network.rdma.port.state": state, "network.rdma.port.ranks": "3",
			"network.rdma.port.reason": "no_link", "gen_ai.training.job_id": "llm", "tracecore.trust": "proven",
		} {
			a.PutStr(key, text)
		}
		a.PutInt("network.port", 1)
		a.PutInt("network.rdma.port.inactive_ns", int64(down))
	})
	ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", "node-a")
	return ld
}

func dies(after time.Duration, rank int64) plog.Logs {
	ld := endsWith(after, rank, 1)
	ld.ResourceLogs().At(0).Resource().Attributes().PutStr("host.name", "node-a")
	return ld
}

// of is the newest revision about the port, "" for none: its status and what goes on.
func of(verdicts []verdict.Verdict) (said []string, last verdict.Verdict) {
	for _, v := range verdicts {
		if v.Pattern == "ib_link_down" {
			said, last = append(said, string(v.Status)+" "+string(v.GoesOn)), v
		}
	}
	return said, last
}

// brokenJob is an engine in which a port went down, killed a rank and is active again.
func brokenJob(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	e := newEngine(t, o)
	e.Advance(began)
	e.Logs(port(0, "mlx5_0", "down"))
	said, _ := of(e.Verdicts())
	require.Equal(t, []string{"open "}, said)
	e.Advance(began.Add(10 * time.Second))
	e.Logs(dies(10*time.Second, 3))
	_ = e.Verdicts()
	e.Advance(began.Add(20 * time.Second))
	e.Logs(port(20*time.Second, "mlx5_0", "active"))
	said, _ = of(e.Verdicts())
	require.Equal(t, []string{"resolved error"}, said)
	return e
}

// isOpen reports whether the port is among what is open.
func isOpen(e *engine.Engine) bool {
	said, _ := of(e.Open())
	return len(said) > 0
}

// What a cause led to is forgotten after a while: that is told, once, with all whom it hit.
func TestWhatGoesOnEnds(t *testing.T) {
	for name, restart := range map[string]bool{"": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			e := brokenJob(t, engine.Options{})
			require.True(t, isOpen(e))
			if restart {
				state, err := e.Snapshot()
				require.NoError(t, err)
				e = newEngine(t, engine.Options{})
				require.NoError(t, e.Restore(state))
				require.True(t, isOpen(e))
			}
			var said []string
			var last verdict.Verdict
			for after := 30 * time.Second; after < 3*time.Hour; after += 30 * time.Second {
				e.Advance(began.Add(after))
				if now, v := of(e.Verdicts()); len(now) > 0 {
					said, last = append(said, now...), v
				}
			}
			require.Equal(t, []string{"resolved "}, said)
			require.Equal(t, verdict.Ranks{3}, last.BlastRadius)
			require.False(t, isOpen(e))
			require.Equal(t, began.Add(20*time.Second), last.Resolved.UTC())
			status, over := last.Incident()
			require.Equal(t, verdict.Resolved, status)
			require.Equal(t, began.Add(10*time.Second+5*time.Minute), over.UTC(), "five quiet minutes after the death")
		})
	}
}

// A cause that has to leave the state says that nothing goes on, as far as is known: else an alert would stand for ever.
func TestACauseThatIsEvictedGoesOnNoMore(t *testing.T) {
	e := brokenJob(t, engine.Options{OpenVerdicts: 8})
	e.Advance(began.Add(30 * time.Second))
	var said []string
	for i := range 50 {
		e.Logs(port(30*time.Second+time.Duration(i)*time.Millisecond, "mlx5_"+string(rune('A'+i)), "down"))
		for _, v := range e.Verdicts() {
			if v.Pattern == "ib_link_down" && v.Culprit["device"] == "mlx5_0" {
				said = append(said, string(v.Status)+" "+string(v.GoesOn))
			}
		}
	}
	require.Equal(t, []string{"resolved "}, said)
}

// Ranks of a job die of what is over: the cause is told as they begin and become certain, not with each of them.
func TestDeathsOfOneFaultTellTheirCauseOnce(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(port(0, "mlx5_0", "down"))
	e.Advance(began.Add(20 * time.Second))
	e.Logs(port(20*time.Second, "mlx5_0", "active"))
	_ = e.Verdicts()
	var said []string
	for rank := range int64(64) {
		e.Logs(dies(19*time.Second+time.Duration(rank)*time.Millisecond, rank))
		now, _ := of(e.Verdicts())
		said = append(said, now...)
	}
	require.LessOrEqual(t, len(said), 4, said)
	require.Equal(t, "resolved error", said[len(said)-1])
}
