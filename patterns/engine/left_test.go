package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const leftRule = `
id: 1000
name: stall
summary: a thing stands still
key: [host]
culprit: [host]
evidence:
  hit: {logs: hit, shows: "hit"}
  place:
    logs: [place, moving]
    match: [host]
    newest: true
    fields:
      where: attributes["where"]
    quotes: [where]
    shows: "[it stands at {where}]"
full: hit
resolves:
  calm: {logs: calm, match: [host], shows: "it is calm"}
severity: error
headline: "{host} stands still[, at {where}]"
remedy: look
`

// happens is a record at that time; where is nowhere where empty.
type happens struct {
	event, where string
	at           time.Duration
}

func (h happens) tell(e *engine.Engine) {
	ld := logs(1, began.Add(h.at), func(_ int, lr plog.LogRecord) {
		lr.SetEventName(h.event)
		if h.where != "" {
			lr.Attributes().PutStr("where", h.where)
		}
	})
	resource := ld.ResourceLogs().At(0).Resource().Attributes()
	resource.PutStr("host.name", "node-1")
	resource.PutStr("tracecore.trust", "proven")
	e.Logs(ld)
}

// headlines are those of all revisions, with what ended.
func headlines(e *engine.Engine, arrive []happens, then ...time.Duration) (all []string) {
	collect := func() {
		for _, v := range e.Verdicts() {
			text := v.Headline
			if v.Status == verdict.Resolved {
				text = "over: " + text
			}
			all = append(all, text)
		}
	}
	e.Advance(began.Add(9 * time.Second)) // a clock that is further ahead is not believed
	for _, h := range arrive {
		h.tell(e)
		collect()
	}
	for _, at := range then {
		e.Advance(began.Add(at))
		collect()
	}
	return all
}

// TestWhatEndsKeepsThePlaceOfItsThing: the thing leaves its place, and soon after its end is told, in whatever
// order. A thing that left its place long before the end, or before the fault began, was not held up there.
func TestWhatEndsKeepsThePlaceOfItsThing(t *testing.T) {
	hit, a, b := happens{"hit", "", 10 * time.Second}, happens{"place", "a", 11 * time.Second}, happens{"place", "b", 14 * time.Second}
	moving := func(at time.Duration) happens { return happens{"moving", "", at} }
	calm := func(at time.Duration) happens { return happens{"calm", "", at} }
	const plain, atA, atB = "node-1 stands still", "node-1 stands still, at a", "node-1 stands still, at b"
	for name, tc := range map[string]struct {
		arrive []happens
		then   []time.Duration
		want   []string
	}{
		"it ends soon after":            {[]happens{hit, a, moving(13 * time.Second), calm(15 * time.Second)}, nil, []string{plain, atA, "over: " + atA}},
		"the end is told first":         {[]happens{hit, a, calm(15 * time.Second), moving(13 * time.Second)}, nil, []string{plain, atA, "over: " + atA}},
		"the place is told last":        {[]happens{hit, moving(13 * time.Second), calm(15 * time.Second), a}, nil, []string{plain, "over: " + plain, "over: " + atA}},
		"the end is told late":          {[]happens{hit, a, moving(13 * time.Second), {"other", "", 19 * time.Second}, calm(15 * time.Second)}, []time.Duration{19 * time.Second}, []string{plain, atA, "over: " + atA}},
		"time passes before its end":    {[]happens{hit, a, moving(13 * time.Second)}, []time.Duration{15 * time.Second, 16 * time.Second}, []string{plain, atA, plain}},
		"it ends later":                 {[]happens{hit, a, moving(13 * time.Second), calm(18 * time.Second)}, nil, []string{plain, atA, "over: " + plain}},
		"it was in another place first": {[]happens{hit, a, moving(13 * time.Second), b, calm(15 * time.Second)}, nil, []string{plain, atA, atB, "over: " + atB}},
		"that it left is told late":     {[]happens{hit, b, a, moving(13 * time.Second), calm(15 * time.Second)}, nil, []string{plain, atB, "over: " + atB}},
		"it moves on and on":            {[]happens{hit, a, moving(12 * time.Second), moving(14 * time.Second), calm(15 * time.Second)}, nil, []string{plain, atA, "over: " + plain}},
		"and that is told late":         {[]happens{hit, a, moving(14 * time.Second), moving(12 * time.Second), calm(15 * time.Second)}, nil, []string{plain, atA, "over: " + plain}},
		"it had left before":            {[]happens{{"place", "a", 5 * time.Second}, moving(9 * time.Second), hit, calm(11 * time.Second)}, nil, []string{plain, "over: " + plain}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, headlines(blockedEngine(t, leftRule, engine.Options{}), tc.arrive, tc.then...))
		})
	}
}

// TestAPlaceIsKeptOverARestart: what was left waits in the snapshot, too.
func TestAPlaceIsKeptOverARestart(t *testing.T) {
	for _, later := range []time.Duration{13 * time.Second, 17 * time.Second} {
		e := blockedEngine(t, leftRule, engine.Options{})
		headlines(e, []happens{{"hit", "", 10 * time.Second}, {"place", "a", 11 * time.Second}, {"moving", "", 13 * time.Second}}, later)
		saved, err := e.Snapshot()
		require.NoError(t, err)
		next := blockedEngine(t, leftRule, engine.Options{})
		require.NoError(t, next.Restore(saved))
		require.Equal(t, []string{"over: node-1 stands still, at a"}, headlines(next, []happens{{"calm", "", 15 * time.Second}}))
	}
}
