package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

const blockedRule = `
id: 1001
name: blocked
summary: a rank is blocked
key: [host]
evidence:
  blocked:
    logs: rank.state
    stays: {while: 'attributes["state"] == "blocked"', for: 30s, by: [rank]}
    shows: "rank {rank} is blocked"
full: blocked
severity: error
headline: "rank {rank} is blocked"
remedy: look
`

func blockedEngine(t *testing.T, text string, opts engine.Options) *engine.Engine {
	t.Helper()
	r, err := rule.Parse("blocked.yaml", []byte(text))
	require.NoError(t, err)
	e, err := engine.New([]rule.Rule{r}, opts)
	require.NoError(t, err)
	e.Advance(began)
	return e
}

// state sends the state of n ranks, from rank first on.
func state(e *engine.Engine, at time.Duration, first, n int, state string) {
	e.Advance(began.Add(at)) // else it is too far ahead, and taken as of now
	e.Logs(logs(n, began.Add(at), func(i int, lr plog.LogRecord) {
		lr.SetEventName("rank.state")
		lr.Attributes().PutInt("gen_ai.training.rank", int64(first+i))
		lr.Attributes().PutInt("process.pid", int64(first+i))
		lr.Attributes().PutStr("state", state)
	}))
}

// Ranks beyond the cap of series push out those that were silent for longest, not
// the rank that is told about all the time.
func TestARankIsFollowedThroughAFloodOfOthers(t *testing.T) {
	e := blockedEngine(t, blockedRule, engine.Options{Series: 8})
	for s := range 12 {
		state(e, time.Duration(s)*4*time.Second, 0, 1, "blocked")
		state(e, time.Duration(s)*4*time.Second+time.Second, 1000+7*s, 7, "blocked")
	}
	e.Advance(began.Add(5 * time.Minute))
	verdicts := e.Verdicts()
	require.Len(t, verdicts, 1)
	require.Equal(t, "rank 0 is blocked", verdicts[0].Headline)
	require.NotZero(t, e.Stats().EvictedSeries)
	require.LessOrEqual(t, e.Stats().Series, 8)
}

// A rule that follows other things than before its state was saved begins anew:
// nobody would ever end the conditions of the old things.
func TestRestoreForgetsSeriesOfOtherThings(t *testing.T) {
	for name, tc := range map[string]struct {
		text     string
		forgets  uint64
		verdicts int
	}{
		"the same rule": {blockedRule, 0, 1},
		"by pid now":    {strings.Replace(blockedRule, "by: [rank]", "by: [rank, pid]", 1), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := blockedEngine(t, blockedRule, engine.Options{})
			state(before, 0, 3, 1, "blocked")
			saved, err := before.Snapshot()
			require.NoError(t, err)
			after := blockedEngine(t, tc.text, engine.Options{})
			require.NoError(t, after.Restore(saved))
			after.Advance(began.Add(time.Minute))
			require.Len(t, after.Verdicts(), tc.verdicts)
			require.Equal(t, tc.forgets, after.Stats().NotRestored)
		})
	}
}

// Two records of one moment that disagree give the same answer in either order.
func TestStatesOfOneMomentHaveNoOrder(t *testing.T) {
	for _, order := range [][]string{{"blocked", "running"}, {"running", "blocked"}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			e := blockedEngine(t, blockedRule, engine.Options{})
			state(e, 0, 3, 1, "blocked")
			for _, s := range order {
				state(e, 20*time.Second, 3, 1, s)
			}
			e.Advance(began.Add(time.Minute))
			require.Empty(t, e.Verdicts())
		})
	}
}
