package ranks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
)

// train has ranks begin a step each second, as their code tells.
func train(t *testing.T, b *bench, ranks, steps int, more attributes) {
	t.Helper()
	for step := range steps {
		for rank := range ranks {
			all := attributes{"gen_ai.training.rank": rank, "gen_ai.training.job_id": "llm"}
			for key, value := range more {
				all[key] = value
			}
			b.tell(t, time.Minute+time.Duration(step)*time.Second, "training.step.begin", rank, all)
		}
	}
}

func (b *bench) job(t *testing.T) history.RankJob {
	t.Helper()
	jobs, _ := b.States(began.Add(b.now))
	require.Len(t, jobs, 1)
	return jobs[0]
}

func TestStepsOfRanks(t *testing.T) {
	b := newBench(DefaultMost)
	for rank := range 16 {
		b.tell(t, 0, "process.start", rank, of(rank, 0, nil))
	}
	require.Nil(t, b.job(t).Steps, "nobody told of any")
	require.Empty(t, b.Steps())
	train(t, b, 16, 20, nil)
	s := b.job(t).Steps
	require.Equal(t, history.Steps{Count: 20, First: began.Add(time.Minute), Last: began.Add(79 * time.Second), Each: 1, Ranks: 16}, *s)
	require.Equal(t, "1.00 s", s.PerStep())
	d, ok := b.State("llm", "", 3, began)
	require.True(t, ok)
	require.EqualValues(t, 20, d.Steps.Count)

	// What was told is kept once, with the run that it is of.
	kept := b.Steps()
	require.Len(t, kept, 1)
	require.NotEmpty(t, kept[0].Run)
	require.EqualValues(t, 20, kept[0].Steps.Count)
	require.InDelta(t, 1, kept[0].Steps.Each, 1e-9)
	require.Empty(t, b.Steps())

	// A clock that is set back, or somebody who tells of the future, stops nothing.
	b.Step("node-0", "llm", 0, began.Add(10*time.Hour).UnixNano())
	for step := range 8 {
		b.Step("node-0", "llm", 0, began.Add(2*time.Minute+time.Duration(step)*2*time.Second).UnixNano())
	}
	d, _ = b.State("llm", "", 0, began)
	require.InDelta(t, 2, d.Steps.Each, 1e-9)

	// A job that starts again counts anew, and what its last start made is not lost.
	b.tell(t, time.Hour, "process.start", 3, of(3, time.Hour, nil))
	require.Nil(t, b.job(t).Steps)
	kept = b.Steps()
	require.Len(t, kept, 1)
	require.EqualValues(t, 29, kept[0].Steps.Count)
}

// A rank is believed on the machine where its kernel shows it, and where one job alone has it.
func TestStepsOfAnotherMachineAreNobodys(t *testing.T) {
	b := newBench(DefaultMost)
	b.tell(t, 0, "process.start", 0, of(0, 0, attributes{"gen_ai.training.job_domain": "user 1"}))
	b.Step("node-9", "llm", 0, began.UnixNano())
	b.Step("node-0", "other", 0, began.UnixNano())
	b.Step("node-0", "llm", 1, began.UnixNano())
	require.Nil(t, b.job(t).Steps)
	b.Step("node-0", "", 0, began.UnixNano())
	require.EqualValues(t, 1, b.job(t).Steps.Count, "a job that says no id")
	require.Empty(t, b.job(t).Steps.PerStep(), "of one step nobody knows how long it takes")

	b.tell(t, 0, "process.start", 0, of(0, 0, attributes{"gen_ai.training.job_domain": "user 2"}))
	b.Step("node-0", "llm", 0, began.Add(time.Second).UnixNano())
	jobs, _ := b.States(began)
	require.Len(t, jobs, 2)
	for _, j := range jobs {
		require.LessOrEqual(t, stepsOf(&j), uint64(1), "two jobs have that rank there: it is nobody's")
	}
	b.tell(t, 2*time.Second, "process.exit", 0, of(0, 0, attributes{"gen_ai.training.job_domain": "user 2", "process.exit.code": 0}))
	b.Step("node-0", "llm", 0, began.Add(3*time.Second).UnixNano())
	jobs, _ = b.States(began)
	require.EqualValues(t, 2, max(stepsOf(&jobs[0]), stepsOf(&jobs[1])))
}

func stepsOf(j *history.RankJob) uint64 {
	if j.Steps == nil {
		return 0
	}
	return j.Steps.Count
}
