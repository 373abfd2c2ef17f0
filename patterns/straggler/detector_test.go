package straggler

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const second = int64(1e9)

// point is what one rank took for one step.
func point(rank, step int64, took float64) *rule.Record {
	r := &rule.Record{Name: metricCompute, Time: 1_000*second + step*second, Resource: pcommon.NewMap(), Attributes: pcommon.NewMap(), Number: took}
	r.Resource.PutStr("host.name", "node-a")
	r.Attributes.PutStr("gen_ai.training.job_id", "job-1")
	r.Attributes.PutInt("gen_ai.training.rank", rank)
	r.Attributes.PutInt("gen_ai.training.step", step)
	r.Attributes.PutInt("gen_ai.training.world_size", 8)
	return r
}

func newDetector() rule.Algorithm { return Detector().New(limitsOf(10 * second)) }

// play shows eight ranks, of which rank 5 is slow, and returns all findings.
func play(t *testing.T, a rule.Algorithm, from, to int64) []rule.Finding {
	var all []rule.Finding
	for step := from; step < to; step++ {
		for rank := range int64(8) {
			took := 1 + 0.01*float64(rank)
			if rank == 5 {
				took = 2
			}
			require.True(t, a.Observe(point(rank, step, took)))
		}
		all = append(all, a.Decide(1_000*second+step*second)...)
	}
	return all
}

func TestStateSurvivesARestart(t *testing.T) {
	a := newDetector()
	require.Empty(t, play(t, a, 0, 3))
	state, err := a.Snapshot()
	require.NoError(t, err)
	b := newDetector()
	require.NoError(t, b.Restore(state))
	again, err := b.Snapshot()
	require.NoError(t, err)
	require.Equal(t, string(state), string(again))
	found := play(t, b, 3, 8)
	require.Len(t, found, 1)
	require.Equal(t, int64(5), found[0].Attributes["gen_ai.training.rank"])
	require.Equal(t, 1_000*second, found[0].Time, "since the first step it was behind in")
}

// TestAFloodTakesRoomFromItself: one host makes up jobs, or ranks of one job; the steps of
// the job of another host are still judged, also after a restart.
func TestAFloodTakesRoomFromItself(t *testing.T) {
	for name, change := range map[string]func(p *rule.Record, i int64){
		"jobs":  func(p *rule.Record, i int64) { p.Attributes.PutStr("gen_ai.training.job_id", fmt.Sprint("j", i)) },
		"ranks": func(p *rule.Record, i int64) { p.Attributes.PutInt("gen_ai.training.rank", i) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDetector()
			require.Empty(t, play(t, d, 0, 3))
			state, err := d.Snapshot()
			require.NoError(t, err)
			d = newDetector()
			require.NoError(t, d.Restore(state))
			const most = 4 * maxJobs
			d.(*detector).most = most
			for i := range int64(2 * most) {
				p := point(0, 1_000, 1)
				p.Resource.PutStr("host.name", "loud")
				p.Attributes.PutStr("gen_ai.training.job_id", "flood")
				change(p, i)
				d.Observe(p)
			}
			require.Positive(t, d.Evicted())
			require.LessOrEqual(t, d.(*detector).held(), most)
			require.Len(t, play(t, d, 3, 8), 1)
		})
	}
}

// TestAJobIsItsIDInsideItsDomain: who takes another's job id accuses none of its ranks and
// hides none, whichever domain he is in, or none, and also after a restart.
func TestAJobIsItsIDInsideItsDomain(t *testing.T) {
	claims := map[string]func(p *rule.Record){
		"another domain": func(p *rule.Record) { p.Attributes.PutStr(rule.AttributeJobDomain, "user 65534") },
		"no domain":      func(*rule.Record) {},
		"a domain like it": func(p *rule.Record) {
			p.Attributes.PutStr(rule.AttributeJobDomain, "user")
			p.Attributes.PutStr(rule.AttributeJob, " 1000\x00job-1")
		},
	}
	lies := map[string]func(rank int64) float64{
		"rank 2 is slow":     func(rank int64) float64 { return map[bool]float64{true: 100, false: 1}[rank == 2] },
		"all ranks are slow": func(int64) float64 { return 100 },
		"all ranks are fast": func(int64) float64 { return 0.001 },
	}
	for who, claim := range claims {
		for what, lie := range lies {
			t.Run(who+", "+what, func(t *testing.T) {
				d := newDetector()
				var found []rule.Finding
				for step := range int64(8) {
					for rank := range int64(8) {
						mine, his := point(rank, step, 1), point(rank, step, lie(rank))
						if rank == 5 {
							mine.Number = 2
						}
						mine.Resource.PutStr(rule.AttributeJobDomain, "user 1000") // as the agent that took it says
						claim(his)
						require.True(t, d.Observe(his))
						require.True(t, d.Observe(mine))
						require.True(t, d.Observe(his))
					}
					state, err := d.Snapshot()
					require.NoError(t, err)
					d = newDetector()
					require.NoError(t, d.Restore(state))
					for _, f := range d.Decide(1_000*second + step*second) {
						if f.Attributes[rule.AttributeJobDomain] == "user 1000" {
							found = append(found, f)
						}
					}
				}
				require.Len(t, found, 1)
				require.Equal(t, int64(5), found[0].Attributes["gen_ai.training.rank"])
			})
		}
	}
}

func TestStateOfAnotherIsRefused(t *testing.T) {
	for _, text := range []string{"", "[]", `{"a": null}`, `{"a": {"name": "b"}}`, `{"a": {"name": "a", "steps": {}, "ranks": {}}}`, `{"\u0000a": {"name": "a", "steps": {"1": null}, "ranks": {}}}`, `{"\u0000a": {"name": "a", "steps": {}, "ranks": {"1": null}}}`} {
		require.Error(t, newDetector().Restore([]byte(text)), text)
	}
	require.NoError(t, newDetector().Restore([]byte("null")))
}

func TestHostilePointsAreNotTaken(t *testing.T) {
	a := newDetector()
	for name, spoil := range map[string]func(*rule.Record){
		"no step":       func(r *rule.Record) { r.Attributes.Remove("gen_ai.training.step") },
		"no rank":       func(r *rule.Record) { r.Attributes.Remove("gen_ai.training.rank") },
		"no job":        func(r *rule.Record) { r.Attributes.Remove("gen_ai.training.job_id") },
		"negative rank": func(r *rule.Record) { r.Attributes.PutInt("gen_ai.training.rank", -1) },
		"text for step": func(r *rule.Record) { r.Attributes.PutStr("gen_ai.training.step", "7") },
		"not a number":  func(r *rule.Record) { r.Number = math.NaN() },
		"negative time": func(r *rule.Record) { r.Number = -1 },
	} {
		r := point(1, 1, 1)
		spoil(r)
		require.False(t, a.Observe(r), name)
	}
	require.Zero(t, a.Due())
}

// BenchmarkStep takes one step of the largest job.
func BenchmarkStep(b *testing.B) {
	const ranks = 16_384
	a := newDetector()
	records := make([]*rule.Record, ranks)
	for i := range records {
		records[i] = point(int64(i), 0, 1+0.0001*float64(i%100))
		records[i].Attributes.PutInt("gen_ai.training.world_size", ranks)
	}
	b.ReportAllocs()
	step := int64(0)
	for b.Loop() {
		step++
		for _, r := range records {
			r.Time += second
			r.Attributes.PutInt("gen_ai.training.step", step)
			a.Observe(r)
		}
		a.Decide(records[0].Time)
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/step")
}

// limitsOf are the defaults of the pattern's own file.
func limitsOf(lateness int64) rule.Limits {
	rules, err := rule.LoadPaths("pattern.yaml")
	if err != nil {
		panic(err)
	}
	return rule.Limits{Lateness: lateness, Values: rules[0].Parameters}
}

// In the start after, the same rank is another process: what it did before is not its own.
// Words of the last start that come late are of that start still.
func TestStepsOfTwoStartsAreNotMixed(t *testing.T) {
	for name, first := range map[string]string{"both known": "2026-1", "the first was not known": ""} {
		t.Run(name, func(t *testing.T) {
			a := newDetector()
			show := func(run string, step int64, slow float64) (found []rule.Finding) {
				for rank := range int64(8) {
					r := point(rank, step, 1+0.01*float64(rank))
					if rank == 5 {
						r.Number = slow
					}
					r.Run = run
					a.Observe(r)
				}
				return a.Decide(1_000*second + step*second)
			}
			for step := range int64(4) {
				require.Empty(t, show(first, step, 2))
			}
			if first == "" { // as soon as the engine knows it
				first = "2026-1"
				require.Empty(t, show(first, 4, 1))
			}
			for step := range int64(4) { // from the first step on, at once
				require.Empty(t, show("2026-2", step, 2), "four steps of this start")
			}
			found := show("2026-2", 4, 2)
			require.Len(t, found, 1)
			require.Equal(t, "2026-2", found[0].Attributes[rule.AttributeRun])
			for step := int64(5); step < 10; step++ {
				require.Empty(t, show(first, step, 1), "ends nothing that the other was told of")
			}

			state, err := a.Snapshot()
			require.NoError(t, err)
			b := newDetector()
			require.NoError(t, b.Restore(state))
			again, err := b.Snapshot()
			require.NoError(t, err)
			require.Equal(t, string(state), string(again))
		})
	}
}
