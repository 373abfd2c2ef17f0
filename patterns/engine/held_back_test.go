package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// killed is the end of a rank by SIGKILL, so long after began, from that sender; "" when
// that is not known.
func killed(after time.Duration, rank int64, relation string) plog.Logs {
	return logs(1, began.Add(after), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		a := lr.Attributes()
		for key, n := range map[string]int64{"process.pid": 100 + rank, "gen_ai.training.rank": rank, "process.exit.code": 0, "process.exit.signal": 9} {
			a.PutInt(key, n)
		}
		a.PutStr("process.exit.signal_name", "SIGKILL")
		a.PutStr("gen_ai.training.job_id", "llm")
		a.PutStr("tracecore.trust", "proven")
		if relation != "" {
			a.PutInt("signal.number", 9)
			a.PutStr("signal.sender.relation", relation)
		}
	})
}

// The first of several ranks that somebody kills is no failure, not for a moment.
func TestFirstOfManyKillsIsNeverTold(t *testing.T) {
	for _, relation := range []string{"", "other", "launcher", "host", "rank"} {
		e := newEngine(t, engine.Options{})
		e.Advance(began)
		e.Logs(killed(0, 0, relation))
		require.Empty(t, e.Verdicts(), relation)
		e.Logs(killed(100*time.Millisecond, 1, relation))
		verdicts := e.Verdicts()
		require.Len(t, verdicts, 1, relation)
		require.Equal(t, verdict.Info, verdicts[0].Severity, relation)
	}
}

func TestLoneKillIsToldAMomentLater(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(killed(0, 3, "other"))
	require.Empty(t, e.Verdicts())
	e.Advance(began.Add(240 * time.Millisecond))
	require.Empty(t, e.Verdicts())
	e.Advance(began.Add(250 * time.Millisecond))
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, []any{verdict.Error, "3"}, []any{verdicts[0].Severity, verdicts[0].Culprit["rank"]})
}

func TestEndOfAContainerIsToldAtOnceAndAccusesNobody(t *testing.T) {
	for _, relation := range []string{"container", "scheduler"} {
		e := newEngine(t, engine.Options{})
		e.Advance(began)
		e.Logs(killed(0, 0, relation))
		verdicts := e.Verdicts()
		require.Len(t, verdicts, 1)
		require.Equal(t, verdict.Info, verdicts[0].Severity)
		require.NotContains(t, verdicts[0].Culprit, "rank")
	}
}

// What waits is told after a restart, too.
func TestHeldVerdictOutlivesARestart(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(killed(0, 3, ""))
	require.Empty(t, e.Verdicts())
	state, err := e.Snapshot()
	require.NoError(t, err)
	again := newEngine(t, engine.Options{})
	require.NoError(t, again.Restore(state))
	again.Advance(began.Add(time.Second))
	require.Len(t, again.Verdicts(), 1)
}

// endsWith is the end of a rank with that status, so long after began.
func endsWith(after time.Duration, rank, code int64) plog.Logs {
	return logs(1, began.Add(after), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		a := lr.Attributes()
		for key, n := range map[string]int64{"process.pid": 100 + rank, "gen_ai.training.rank": rank, "process.exit.code": code, "process.exit.signal": 0} {
			a.PutInt(key, n)
		}
		a.PutStr("gen_ai.training.job_id", "llm")
		a.PutStr("tracecore.trust", "proven")
	})
}

// A rank leaves, and its peers fail a second apart: none of them is accused, not for a moment.
func TestPeersOfARankThatLeavesAreNeverAccused(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(endsWith(0, 0, 0))
	e.Logs(endsWith(3500*time.Millisecond, 1, 1))
	require.Empty(t, e.Verdicts())
	e.Advance(began.Add(4 * time.Second))
	require.Empty(t, e.Verdicts())
	e.Logs(endsWith(4500*time.Millisecond, 2, 1))
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, []any{verdict.Error, verdict.Full, "0"}, []any{verdicts[0].Severity, verdicts[0].Confidence, verdicts[0].Culprit["rank"]})
}

// What a rank says of itself is what the verdict waits for, where the rule takes that for certain: the kernel's word of its
// sockets then waits no longer.
func TestWhatAVerdictWaitsForMayComeByAWeakerWord(t *testing.T) {
	record := func(after time.Duration, event, trust string, pid int64, set func(a pcommon.Map)) plog.Logs {
		return logs(1, began.Add(after), func(_ int, lr plog.LogRecord) {
			lr.SetEventName(event)
			a := lr.Attributes()
			a.PutInt("process.pid", pid)
			a.PutStr("process.executable.name", "python")
			a.PutInt("gen_ai.training.rank", 3)
			a.PutStr("gen_ai.training.job_id", "llm")
			a.PutStr("tracecore.trust", trust)
			set(a)
		})
	}
	for class, wait := range map[string]time.Duration{"data_loading": 0, "own_code": 2 * time.Second} {
		e := newEngine(t, engine.Options{})
		e.Advance(began)
		e.Logs(record(0, "process.exit", "proven", 1001, func(a pcommon.Map) {
			a.PutInt("process.exit.signal", 9)
			a.PutBool("process.exit.inherited_identity", true)
		}))
		e.Logs(record(3*time.Second, "nccl.socket.stall", "proven", 42, func(pcommon.Map) {}))
		require.Empty(t, e.Verdicts())
		e.Logs(record(3*time.Second, "process.stack.doing", "claimed", 42, func(a pcommon.Map) {
			a.PutStr("process.stack.wait_class", class)
			a.PutStr("nccl.rank.silence", "overdue")
		}))
		if wait > 0 {
			e.Advance(began.Add(3*time.Second + wait - time.Millisecond))
			require.Empty(t, e.Verdicts(), class)
		}
		e.Advance(began.Add(3*time.Second + wait))
		verdicts := e.Verdicts()
		require.Len(t, verdicts, 1, class)
		require.Equal(t, "dataloader_hang", verdicts[0].Pattern)
	}
}

// Where no second one dies, the job was over: the death is told by itself.
func TestADeathAtTheEndIsToldAMomentLater(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(endsWith(0, 0, 0))
	e.Logs(endsWith(2*time.Second, 1, 1))
	e.Advance(began.Add(4900 * time.Millisecond))
	require.Empty(t, e.Verdicts())
	e.Advance(began.Add(5 * time.Second))
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, []any{verdict.Partial, "1"}, []any{verdicts[0].Confidence, verdicts[0].Culprit["rank"]})
}

// Nobody ended well before: the first death is told at once.
func TestADeathWithoutAnEndIsToldAtOnce(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(endsWith(0, 1, 1))
	require.Len(t, e.Verdicts(), 1)
}

// The sockets of a rank stand still again once its mount has answered: that is no news of the mount.
func TestWhatComesAfterTheEndIsNoEvidence(t *testing.T) {
	e := newEngine(t, engine.Options{})
	record := func(after time.Duration, event string) {
		e.Advance(began.Add(after))
		e.Logs(logs(1, began.Add(after), func(_ int, lr plog.LogRecord) {
			lr.SetEventName(event)
			a := lr.Attributes()
			a.PutInt("process.pid", 42)
			a.PutStr("process.executable.name", "python")
			a.PutInt("gen_ai.training.rank", 3)
			a.PutStr("gen_ai.training.job_id", "llm")
			a.PutStr("tracecore.trust", "proven")
			a.PutStr("fuse.device", "0:43")
			a.PutStr("fuse.opcode", "READ")
		}))
	}
	record(0, "fuse.stall")
	record(3*time.Second, "nccl.socket.stall")
	record(5*time.Second, "fuse.stall.end")
	of := func() (all []verdict.Verdict) {
		for _, v := range e.Verdicts() {
			if v.Pattern == "dataloader_hang" {
				all = append(all, v)
			}
		}
		return all
	}
	over := of()
	require.NotEmpty(t, over)
	require.Equal(t, verdict.Resolved, over[len(over)-1].Status)
	for after := 20 * time.Second; after < 4*time.Minute; after += 20 * time.Second {
		record(after, "nccl.socket.stall")
		record(after+5*time.Second, "nccl.socket.stall.end")
		require.Empty(t, of())
	}
}
