package silentdatacorruption

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const hour = int64(3600e9)

func loss(at int64, value float64) *rule.Record {
	r := &rule.Record{Name: metricLoss, Time: at * hour, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap(), Number: value}
	r.Attributes.PutStr("gen_ai.training.job_id", "job-1")
	return r
}

func newDetector() rule.Algorithm { return Detector().New(limitsOf(1)) }

func TestStateSurvivesARestart(t *testing.T) {
	a := newDetector()
	for i, v := range []float64{2, 1.9, 1.8} {
		require.True(t, a.Observe(loss(int64(i+1), v)))
	}
	require.Empty(t, a.Decide(4*hour))
	require.True(t, a.Observe(loss(4, 2.6)))
	state, err := a.Snapshot()
	require.NoError(t, err)
	b := newDetector()
	require.NoError(t, b.Restore(state))
	again, err := b.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(state), string(again))
	require.Equal(t, a.Due(), b.Due())
	found := b.Decide(5 * hour)
	require.Len(t, found, 1)
	require.Equal(t, eventDrop, found[0].Event)
	require.Equal(t, int64(37), found[0].Attributes["evaluation.worse_percent"])
	require.True(t, b.Observe(loss(6, 1.8)))
	end := b.Decide(7 * hour)
	require.Equal(t, eventEnd, end[0].Event)
	require.Equal(t, found[0].ID, end[0].ID)
}

func TestStateOfAnotherIsRefused(t *testing.T) {
	for _, text := range []string{"", "[]", `{"a": null}`} {
		require.Error(t, newDetector().Restore([]byte(text)), text)
	}
	require.NoError(t, newDetector().Restore([]byte("null")))
}

func TestEvaluationOfNoJobIsNotTaken(t *testing.T) {
	r := loss(1, 2)
	r.Attributes.Remove("gen_ai.training.job_id")
	require.False(t, newDetector().Observe(r))
}

func TestPendingIsBounded(t *testing.T) {
	a := newDetector()
	for i := range int64(maxPending + 10) {
		a.Observe(loss(i, 1))
	}
	require.EqualValues(t, 10, a.Evicted())
}

// limitsOf are the defaults of the pattern's own file.
func limitsOf(lateness int64) rule.Limits {
	rules, err := rule.LoadPaths("pattern.yaml")
	if err != nil {
		panic(err)
	}
	return rule.Limits{Lateness: lateness, Values: rules[0].Parameters}
}
