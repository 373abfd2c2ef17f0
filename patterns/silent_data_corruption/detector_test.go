package silentdatacorruption

import (
	"fmt"
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

// TestAFloodTakesRoomFromItself: one host makes up jobs; the job of another is still judged
// by what it said before.
func TestAFloodTakesRoomFromItself(t *testing.T) {
	d := newDetector()
	for i, v := range []float64{2, 1.9, 1.8} {
		p := loss(int64(i+1), v)
		p.Resource.PutStr("host.name", "quiet")
		d.Observe(p)
	}
	require.Empty(t, d.Decide(4*hour))
	for i := range int64(2 * maxSeries) {
		p := loss(4, 1)
		p.Resource.PutStr("host.name", "loud")
		p.Attributes.PutStr("gen_ai.training.job_id", fmt.Sprint(i))
		d.Observe(p)
	}
	require.Positive(t, d.Evicted())
	require.True(t, d.Observe(loss(5, 2.6)))
	require.Len(t, d.Decide(6*hour), 1)
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
