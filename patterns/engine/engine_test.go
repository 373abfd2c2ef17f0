package engine_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

func TestWantedRecordsAreCopiedAndNoOthers(t *testing.T) {
	e := newEngine(t, engine.Options{})
	ld := logs(3, began, func(i int, lr plog.LogRecord) {
		if xid("0000:65:00.0", []int64{13, 43, 79}[i])(i, lr); i == 1 {
			lr.SetEventName("k8s.event") // watched for a hint that this one does not carry
		}
	})
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().SetEventName("else")
	wanted := e.Logs(ld)
	require.Equal(t, 1, wanted.ResourceLogs().Len())
	records := wanted.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
	require.Equal(t, 2, records.Len())
	host, _ := wanted.ResourceLogs().At(0).Resource().Attributes().Get("host.name")
	require.Equal(t, "node-a", host.Str())
	require.Equal(t, 4, ld.LogRecordCount(), "the input stays as it was")
	require.Equal(t, uint64(2), e.Stats().Matched)
	require.Equal(t, uint64(2), e.Stats().Unmatched)
	require.Zero(t, e.Logs(plog.NewLogs()).LogRecordCount())
}

// No time that a record can carry may end the engine or push its clock away.
func TestHostileTimesAndCounts(t *testing.T) {
	for name, hostile := range map[string]func(plog.LogRecord){
		"no time":         func(lr plog.LogRecord) { lr.SetTimestamp(0) },
		"end of time":     func(lr plog.LogRecord) { lr.SetTimestamp(math.MaxUint64) },
		"year 2262":       func(lr plog.LogRecord) { lr.SetTimestamp(math.MaxInt64) },
		"last is the end": func(lr plog.LogRecord) { lr.Attributes().PutInt(rule.AttributeLastTime, math.MaxInt64) },
		"first is zero":   func(lr plog.LogRecord) { lr.Attributes().PutInt(rule.AttributeFirstTime, 1) },
		"count":           func(lr plog.LogRecord) { lr.Attributes().PutInt(rule.AttributeCount, math.MaxInt64) },
		"negative count":  func(lr plog.LogRecord) { lr.Attributes().PutInt(rule.AttributeCount, math.MinInt64) },
		"count of text":   func(lr plog.LogRecord) { lr.Attributes().PutStr(rule.AttributeCount, "many") },
		"last is text":    func(lr plog.LogRecord) { lr.Attributes().PutStr(rule.AttributeLastTime, "soon") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, clock := range []bool{true, false} {
				e := newEngine(t, engine.Options{})
				if clock {
					e.Advance(began)
				}
				e.Logs(logs(1, began, func(i int, lr plog.LogRecord) {
					xid("0000:01:00.0", 79)(i, lr)
					hostile(lr)
				}))
				e.Logs(logs(1, began.Add(time.Second), xid("0000:02:00.0", 79)))
				verdicts := e.Verdicts()
				require.Len(t, verdicts, 2, "clock %v", clock)
				require.Zero(t, e.Stats().Late)
			}
		})
	}
}

func TestOnePastJumpOfABrokenClockDoesNotBlindOthers(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Advance(began)
	e.Logs(logs(1, began.Add(24*365*time.Hour), xid("0000:01:00.0", 79)))
	e.Logs(logs(1, began.Add(-5*time.Second), xid("0000:02:00.0", 79)))
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 2)
	for _, v := range verdicts {
		require.WithinDuration(t, began, v.Onset, 10*time.Second)
	}
	require.Equal(t, uint64(1), e.Stats().Ahead)
}

// Text of records ends up on terminals: it must not carry control characters.
func TestValuesAreCleanedAndBounded(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Logs(logs(1, began, func(i int, lr plog.LogRecord) {
		xid("0000:65:00.0", 79)(i, lr)
		lr.Attributes().PutStr("process.executable.name", "py\x1b[2J\nthon\xff"+strings.Repeat("x", 5000))
	}))
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	name := verdicts[0].Culprit["process"]
	require.True(t, strings.HasPrefix(name, `py\x1b[2J thon�xxx`), name)
	require.Less(t, len(name), 300)
}

func TestAdvanceSaysWhetherStateChanged(t *testing.T) {
	e := newEngine(t, engine.Options{})
	require.False(t, e.Advance(began))
	e.Logs(logs(1, began, func(_ int, lr plog.LogRecord) {
		lr.SetEventName("oom.kill")
		lr.Attributes().PutInt("process.pid", 7)
		lr.Attributes().PutInt("gen_ai.training.rank", 1)
		lr.Attributes().PutStr("oomkill.constraint", "node")
	}))
	require.Len(t, e.Verdicts(), 1)
	require.False(t, e.Advance(began.Add(time.Second)))
	require.True(t, e.Advance(began.Add(time.Hour)), "the verdict expired")
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.EqualValues(t, "resolved", verdicts[0].Status)
	require.False(t, e.Advance(began), "time does not go back")
	require.Zero(t, e.Stats().OpenVerdicts)
}

func TestRestoreRefusesWhatItCannotRead(t *testing.T) {
	e := newEngine(t, engine.Options{})
	require.ErrorContains(t, e.Restore([]byte("{")), "remove the stored state to start empty")
	require.ErrorContains(t, e.Restore([]byte(`{"version":99}`)), "version 99, this engine reads 1")
}

func TestRestoreDropsFaultsOfRulesThatHaveGone(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Logs(logs(1, began, xid("0000:65:00.0", 79)))
	e.Logs(logs(1, began, func(i int, lr plog.LogRecord) {
		xid("0000:65:00.0", 119)(i, lr)
		lr.Attributes().PutStr("kernelevents.class", "reset_gpu")
	}))
	require.Len(t, e.Verdicts(), 2)
	saved, err := e.Snapshot()
	require.NoError(t, err)

	rules, err := patterns.Library()
	require.NoError(t, err)
	var left []rule.Rule
	for _, r := range rules {
		if r.Name == "xid_impact" || r.Name == "rank_exit" {
			r.Explains = slices.DeleteFunc(slices.Clone(r.Explains), func(x rule.Explain) bool { return x.Pattern != "rank_exit" })
			left = append(left, r)
		}
	}
	fewer, err := engine.New(left, engine.Options{})
	require.NoError(t, err)
	require.NoError(t, fewer.Restore(saved))
	s := fewer.Stats()
	require.Equal(t, 1, s.OpenVerdicts)
	require.NotZero(t, s.NotRestored)
	require.Empty(t, fewer.Verdicts(), "what was given out is not given out again")
	fewer.Logs(logs(1, began.Add(time.Second), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		lr.Attributes().PutInt("process.pid", 4242)
		lr.Attributes().PutInt("gen_ai.training.rank", 3)
		lr.Attributes().PutInt("process.exit.code", 0)
		lr.Attributes().PutInt("process.exit.signal", 6)
	}))
	verdicts := fewer.Verdicts()
	require.Len(t, verdicts, 2)
	require.Equal(t, 3, verdicts[0].Revision+verdicts[1].Revision, "the known one once more, the death for the first time")
}

func TestNewRefusesRulesThatDoNotFitTogether(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	_, err = engine.New(append(rules, rules[0]), engine.Options{})
	require.ErrorContains(t, err, "is read twice")
	mine := rules[0]
	mine.File, mine.ID = "mine.yaml", 1000
	_, err = engine.New(append(rules, mine), engine.Options{})
	require.ErrorContains(t, err, "choose another name, or write replaces: "+mine.Name)
	other := mine
	other.File, other.ID, mine.Name, other.Name = "other.yaml", 1001, "mine", "mine"
	_, err = engine.New(append(rules, mine, other), engine.Options{})
	require.ErrorContains(t, err, "the name mine is taken by mine.yaml")
	require.NotContains(t, err.Error(), "replaces: mine", "it is no built-in pattern")
}

// One record may match the evidence of very many faults; it joins the newest.
func TestFanOutIsBounded(t *testing.T) {
	e := newEngine(t, engine.Options{FanOut: 4})
	for i := range 100 {
		at := began.Add(time.Duration(i) * time.Millisecond)
		e.Logs(logs(1, at, xid("0000:"+string(rune('a'+i%26))+string(rune('a'+i/26))+":00.0", 13)))
	}
	e.Logs(logs(1, began.Add(time.Second), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("process.exit")
		lr.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(time.Second)))
		lr.Attributes().PutInt("process.pid", 4242)
		lr.Attributes().PutInt("process.exit.code", 1)
	}))
	require.Len(t, e.Verdicts(), 4)
	require.NotZero(t, e.Stats().FanOutLimited)
}
