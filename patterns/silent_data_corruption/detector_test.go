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

// TestAJobIsItsIDInsideItsDomain: evaluations that another claims for a job make it
// neither worse nor better.
func TestAJobIsItsIDInsideItsDomain(t *testing.T) {
	for _, domain := range []string{"", "user 65534", "user 1000\x00job-1"} {
		for name, lie := range map[string]float64{"worse": 100, "better": 0.01} {
			t.Run(fmt.Sprintf("%q %s", domain, name), func(t *testing.T) {
				d := newDetector()
				var found []rule.Finding
				for i, value := range []float64{2, 1.9, 1.8, 1.85, 2.6, 1.8} {
					for _, of := range []string{domain, "user 1000", domain} {
						p := loss(int64(i+1), value)
						if of != "user 1000" {
							p.Number = lie * float64(i%2+1) // he has drops of his own
						}
						if of != "" {
							p.Attributes.PutStr(rule.AttributeJobDomain, of)
						}
						require.True(t, d.Observe(p))
					}
					state, err := d.Snapshot()
					require.NoError(t, err)
					d = newDetector()
					require.NoError(t, d.Restore(state))
					for _, f := range d.Decide(int64(i+2) * hour) {
						if f.Attributes[rule.AttributeJobDomain] == "user 1000" {
							found = append(found, f)
						}
					}
				}
				require.Len(t, found, 2)
				require.Equal(t, []any{eventDrop, 5 * hour}, []any{found[0].Event, found[0].Time})
				require.Equal(t, []any{eventEnd, 6 * hour}, []any{found[1].Event, found[1].Time})
			})
		}
	}
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
	worse := loss(5, 2.6)
	worse.Resource.PutStr("host.name", "quiet")
	require.True(t, d.Observe(worse))
	require.Len(t, d.Decide(6*hour), 1)
}

// TestAStrangerElsewhereSpeaksForHimselfAlone: one who calls his job the same neither makes
// it worse nor hides that it is.
func TestAStrangerElsewhereSpeaksForHimselfAlone(t *testing.T) {
	from := func(host string, at int64, value float64) *rule.Record {
		p := loss(at, value)
		p.Resource.PutStr("host.name", host)
		return p
	}
	d := newDetector()
	for i := range int64(4) {
		d.Observe(from("node-a", i+1, 2))
		d.Observe(from("elsewhere", i+1, 9)) // the median of both would be his
		d.Observe(from("elsewhere", i+1, 9))
	}
	require.Empty(t, d.Decide(5*hour))
	d.Observe(from("elsewhere", 6, 90))
	d.Observe(from("node-a", 6, 3))
	found := d.Decide(7 * hour)
	require.Len(t, found, 2)
	for _, f := range found {
		require.Equal(t, eventDrop, f.Event)
	}
	require.ElementsMatch(t, []any{"node-a", "elsewhere"}, []any{found[0].Attributes["evaluation.host"], found[1].Attributes["evaluation.host"]})
	d.Observe(from("elsewhere", 8, 9))
	ends := d.Decide(9 * hour)
	require.Len(t, ends, 1)
	require.Equal(t, "elsewhere", ends[0].Attributes["evaluation.host"])
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
