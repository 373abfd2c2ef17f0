package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// loss is what a receiver says that it lost.
type loss struct {
	host, things, why, trust string
	since, until             time.Duration
	count                    int
	events                   []string
}

func lostHits() loss {
	return loss{host: "node-1", things: "hits", why: "overflow", trust: "proven", since: -2 * time.Second, until: time.Second, count: 12, events: []string{"other", "now"}}
}

func (l loss) logs() plog.Logs {
	ld := logs(1, began.Add(l.until), func(_ int, lr plog.LogRecord) {
		lr.SetEventName("tracecore.lost")
		a := lr.Attributes()
		a.PutStr("tracecore.lost.things", l.things)
		a.PutStr("tracecore.lost.why", l.why)
		a.PutInt("tracecore.lost.since_unix_nano", began.Add(l.since).UnixNano())
		if l.count != 0 {
			a.PutInt("tracecore.lost.count", int64(l.count))
		}
		events := a.PutEmptySlice("tracecore.lost.events")
		for _, name := range l.events {
			events.AppendEmpty().SetStr(name)
		}
	})
	resource := ld.ResourceLogs().At(0).Resource().Attributes()
	resource.PutStr("host.name", l.host)
	resource.PutStr("tracecore.trust", l.trust)
	return ld
}

const twelveHits = "12 of the hits of node-1 between 2026-01-02T03:04:03Z and 2026-01-02T03:04:06Z: they were lost, there was no room for them"

// TestWhatWasLostIsSaidWithTheVerdictThatItTouches: of the same host, of events that its rule reads,
// near the time of its evidence, by the word of a receiver; whichever comes first.
func TestWhatWasLostIsSaidWithTheVerdictThatItTouches(t *testing.T) {
	change := func(edit func(*loss)) loss { l := lostHits(); edit(&l); return l }
	for name, tc := range map[string]struct {
		loss loss
		want string // "" for nothing
	}{
		"lost":                        {lostHits(), twelveHits},
		"nobody knows how many":       {change(func(l *loss) { l.count = 0 }), "hits of node-1 between 2026-01-02T03:04:03Z and 2026-01-02T03:04:06Z: they were lost, there was no room for them"},
		"the probe was down":          {change(func(l *loss) { l.count, l.why = 0, "down" }), "hits of node-1 between 2026-01-02T03:04:03Z and 2026-01-02T03:04:06Z: the probe did not work"},
		"no agent ran":                {change(func(l *loss) { l.why = "away" }), "12 of the hits of node-1 between 2026-01-02T03:04:03Z and 2026-01-02T03:04:06Z: they were lost, for no agent ran"},
		"a reason of a later version": {change(func(l *loss) { l.why = "quantum" }), "12 of the hits of node-1 between 2026-01-02T03:04:03Z and 2026-01-02T03:04:06Z: they were lost"},
		"shortly before":              {change(func(l *loss) { l.since, l.until = -30*time.Second, -9*time.Second }), "12 of the hits of node-1 between 2026-01-02T03:03:35Z and 2026-01-02T03:03:56Z: they were lost, there was no room for them"},
		"long before":                 {change(func(l *loss) { l.since, l.until = -30*time.Second, -11*time.Second }), ""},
		"long after":                  {change(func(l *loss) { l.since, l.until = 11*time.Second, 20*time.Second }), ""},
		"of another host":             {change(func(l *loss) { l.host = "node-2" }), ""},
		"of no host":                  {change(func(l *loss) { l.host = "" }), ""},
		"of what it does not read":    {change(func(l *loss) { l.events = []string{"other"} }), ""},
		"of nothing":                  {change(func(l *loss) { l.events = nil }), ""},
		"a claim":                     {change(func(l *loss) { l.trust = "claimed" }), ""},
		"by a stranger":               {change(func(l *loss) { l.trust = "foreign" }), ""},
		"it ends before it begins":    {change(func(l *loss) { l.since = 5 * time.Second }), ""},
		"without a name":              {change(func(l *loss) { l.things = "" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if tc.want != "" {
				want = []string{tc.want}
			}
			e := blockedEngine(t, newestRule, engine.Options{})
			e.Logs(tc.loss.logs())
			inSpan(e, "hit", 0, "proven", 0, 0)
			told := e.Verdicts()
			require.Len(t, told, 1)
			require.Equal(t, want, told[0].NotObserved)

			e = blockedEngine(t, newestRule, engine.Options{})
			inSpan(e, "hit", 0, "proven", 0, 0)
			require.Empty(t, e.Verdicts()[0].NotObserved)
			e.Logs(tc.loss.logs())
			told = e.Verdicts()
			require.Len(t, told, len(want))
			if want != nil {
				require.Equal(t, want, told[0].NotObserved)
				require.Equal(t, 2, told[0].Revision)
				require.Equal(t, verdict.Full, told[0].Confidence, "what was seen was seen")
			}
			require.Empty(t, e.Verdicts())
		})
	}
}

// TestWhatIsLostForLongIsSaidOnce: a flood makes no revision after revision, and the next one has
// the sum. The same record, sent again, counts once; the order changes nothing.
func TestWhatIsLostForLongIsSaidOnce(t *testing.T) {
	var all []loss
	for i := range 20 {
		l := lostHits()
		l.since, l.until = time.Duration(i-4)*500*time.Millisecond, time.Duration(i)*500*time.Millisecond
		all = append(all, l, l)
	}
	want := ""
	for seed := range uint64(10) {
		e := blockedEngine(t, newestRule, engine.Options{})
		inSpan(e, "hit", 0, "proven", 0, 0)
		require.Len(t, e.Verdicts(), 1)
		revisions := 0
		for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(all)) { //nolint:gosec // a test
			e.Logs(all[i].logs())
			revisions += len(e.Verdicts())
		}
		require.LessOrEqual(t, revisions, 4, "it is said that some were lost, then how many, after pauses that double")
		require.Positive(t, revisions)
		inSpan(e, "now", time.Second, "proven", 0, 0)
		told := e.Verdicts()
		require.Len(t, told, 1)
		require.Len(t, told[0].NotObserved, 1)
		if want == "" {
			want = told[0].NotObserved[0]
		}
		require.Equal(t, want, told[0].NotObserved[0])
	}
	require.Equal(t, "240 of the hits of node-1 between 2026-01-02T03:04:03Z and 2026-01-02T03:04:14Z: they were lost, there was no room for them", want)
}

// TestWhatIsLostLaterIsNotInWhatWasSaved: it has a place among what was lost before.
func TestWhatIsLostLaterIsNotInWhatWasSaved(t *testing.T) {
	e := blockedEngine(t, newestRule, engine.Options{})
	lose := func(count int) {
		one := lostHits()
		one.count = count
		require.Equal(t, 1, e.Logs(one.logs()).LogRecordCount())
	}
	for count := range 9 {
		lose(100 + count)
		saved, err := e.Save()
		require.NoError(t, err)
		then, err := saved.Encode()
		require.NoError(t, err)
		lose(50 - count)
		encoded, err := saved.Encode()
		require.NoError(t, err)
		require.Equal(t, string(then), string(encoded))
	}
}

// TestWhatWasLostOutlivesARestart, and a verdict that is over gets no revision of it.
func TestWhatWasLostOutlivesARestart(t *testing.T) {
	e := blockedEngine(t, newestRule, engine.Options{})
	wanted := e.Logs(lostHits().logs())
	require.Equal(t, 1, wanted.LogRecordCount(), "it is in the journal")
	require.Zero(t, e.Logs(lostHits().logs()).LogRecordCount(), "once")
	state, err := e.Snapshot()
	require.NoError(t, err)
	again := blockedEngine(t, newestRule, engine.Options{})
	require.NoError(t, again.Restore(state))
	copied, err := again.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(state), string(copied))
	inSpan(again, "hit", 0, "proven", 0, 0)
	require.Equal(t, []string{twelveHits}, again.Verdicts()[0].NotObserved)

	inSpan(again, "calm", 2*time.Second, "proven", 0, 0)
	require.Equal(t, verdict.Resolved, again.Verdicts()[0].Status)
	late := lostHits()
	late.count = 7
	again.Logs(late.logs())
	require.Empty(t, again.Verdicts())
}

// TestWhatIsLostIsBounded: many receivers fill neither the verdict nor the memory, and a host that
// loses most takes no room from others.
func TestWhatIsLostIsBounded(t *testing.T) {
	e := blockedEngine(t, newestRule, engine.Options{})
	e.Logs(lostHits().logs())
	for i := range 6000 {
		l := lostHits()
		l.host, l.things = "loud", fmt.Sprint("things ", i)
		e.Logs(l.logs())
	}
	for i := range 9 {
		l := lostHits()
		l.things = fmt.Sprint("others ", i)
		e.Logs(l.logs())
	}
	inSpan(e, "hit", 0, "proven", 0, 0)
	told := e.Verdicts()[0].NotObserved
	require.Len(t, told, 5)
	require.Equal(t, twelveHits, told[0])
	require.Equal(t, "what 6 more receivers lost in that time", told[4])
	state, err := e.Snapshot()
	require.NoError(t, err)
	require.Less(t, len(state), 2<<20)

	long := lostHits()
	long.why, long.events = strings.Repeat("w", 1<<20), []string{strings.Repeat("x", 1<<20), "now"}
	e.Logs(long.logs())
	with, err := e.Snapshot()
	require.NoError(t, err)
	require.Less(t, len(with)-len(state), 4<<10, "an agent that is taken over names what it likes")
}

// TestHostileLosses: nothing breaks, and nothing is believed.
func TestHostileLosses(t *testing.T) {
	e := blockedEngine(t, newestRule, engine.Options{})
	for i, value := range []func(pcommon.Map, string){
		func(a pcommon.Map, key string) { a.PutInt(key, -1<<62) },
		func(a pcommon.Map, key string) { a.PutDouble(key, 1e300) },
		func(a pcommon.Map, key string) { a.PutEmptyMap(key).PutStr("x", "y") },
		func(a pcommon.Map, key string) { a.PutEmptySlice(key).AppendEmpty().SetEmptyMap() },
		func(a pcommon.Map, key string) { a.PutStr(key, "\x1b[2J\xff") },
	} {
		for _, key := range []string{"count", "events", "since_unix_nano", "things", "why"} {
			l := lostHits()
			l.count = i + 1
			ld := l.logs()
			value(ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes(), "tracecore.lost."+key)
			e.Logs(ld)
		}
	}
	inSpan(e, "hit", 0, "proven", 0, 0)
	for _, text := range e.Verdicts()[0].NotObserved {
		require.NotContains(t, text, "\x1b")
	}
}

// TestWhatWouldExplainAVerdictWasLost: the cause of a fault is of another pattern.
func TestWhatWouldExplainAVerdictWasLost(t *testing.T) {
	const cause = `
id: 1001
name: cause
summary: why
key: [host]
culprit: [host]
evidence:
  why: {logs: why, shows: "why"}
full: why
explains:
  - {pattern: newest, share: [host], within: 5m}
severity: error
headline: "why on {host}"
remedy: look
`
	var rules []rule.Rule
	for _, text := range []string{newestRule, cause} {
		r, err := rule.Parse("rule.yaml", []byte(text))
		require.NoError(t, err)
		rules = append(rules, r)
	}
	for event, touched := range map[string]bool{"why": true, "hit": true, "other": false} {
		e, err := engine.New(rules, engine.Options{})
		require.NoError(t, err)
		e.Advance(began)
		l := lostHits()
		l.events = []string{event}
		e.Logs(l.logs())
		inSpan(e, "hit", 0, "proven", 0, 0)
		told := e.Verdicts()
		require.Len(t, told, 1)
		require.Equal(t, touched, len(told[0].NotObserved) == 1, event)
	}
}

// TestWhatWasLostAfterTheEndIsNotSaid: an agent that was away after a verdict was over has missed nothing of it. What
// was lost until then may have been of it.
func TestWhatWasLostAfterTheEndIsNotSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		since time.Duration
		said  int
	}{"after the end": {3 * time.Second, 0}, "before the end": {time.Second, 1}} {
		t.Run(name, func(t *testing.T) {
			e := blockedEngine(t, newestRule, engine.Options{})
			inSpan(e, "hit", 0, "proven", 0, 0)
			inSpan(e, "calm", 2*time.Second, "proven", 0, 0)
			require.Len(t, e.Verdicts(), 1)
			l := lostHits()
			l.why, l.since, l.until = "away", tc.since, 9*time.Second
			e.Logs(l.logs())
			require.Empty(t, e.Verdicts())
			inSpan(e, "now", time.Second, "proven", 0, 0) // told late
			told := e.Verdicts()
			require.Len(t, told, 1)
			require.Equal(t, verdict.Resolved, told[0].Status)
			require.Len(t, told[0].NotObserved, tc.said)
		})
	}
}
