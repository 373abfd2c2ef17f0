//go:build linux

package acceptance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/standin"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// asleepFor is shorter than the minute that an agent waits for a rank of a job that it does not know.
const asleepFor = 25 * time.Second

// TestAHangIsNamedAsSoonAfterARestart: the agent is killed, and knows at its next start that the job is at
// its steps. A rank that falls asleep then, or has just before, is named, though it sleeps for less than a minute.
func TestAHangIsNamedAsSoonAfterARestart(t *testing.T) {
	privtest.Require(t)
	if testing.Short() || inTestMachine(t) {
		t.Skip("slow: it waits until the pauses of a job are known")
	}
	t.Parallel()
	for _, library := range []standin.Library{standin.NCCL, standin.Gloo} {
		t.Run(string(library), func(t *testing.T) {
			t.Parallel()
			state, name := t.TempDir(), "restart-"+string(library)
			named := func(a agent, held string, made *fault) {
				v := a.await(t, "the sleeping rank", func(v verdict.Verdict) bool {
					return inJob("nccl_socket_stall", name, "2")(v) && v.Severity == verdict.Error && v.Status != verdict.Resolved
				})
				made.named()
				t.Logf("%s: named after %v: %s", held, made.delay.Round(time.Millisecond), v.Headline)
				a.await(t, "its end", func(end verdict.Verdict) bool { return end.ID == v.ID && end.Status == verdict.Resolved })
			}
			first := startAgent(t, state)
			job := first.startKnownJob(t, standin.Options{Library: library, JobID: name, Phase: 200 * time.Millisecond})
			kept := first.snapshots(t) + 7 // one a second; what is learned is kept every 5 s
			require.Eventually(t, func() bool { return first.snapshots(t) >= kept }, hosttest.Patience, 20*time.Millisecond)
			first.Kill()

			second := startAgent(t, state)
			made := cause(t, "ncclsock", "asleep after a restart")
			require.NoError(t, job.Compute(2, asleepFor))
			named(second, "asleep after a restart", made)

			made = cause(t, "ncclsock", "asleep through a restart")
			require.NoError(t, job.Compute(2, asleepFor))
			time.Sleep(begins)
			second.Kill()
			third := startAgent(t, state)
			named(third, "asleep through a restart", made)

			before := job.Steps(2)
			require.NoError(t, job.ComputeInChild(2, 2*pause))
			time.Sleep(begins)
			third.Kill()
			fourth := startAgent(t, state)
			require.Eventually(t, func() bool { return job.Steps(2) >= before+10 }, hosttest.Patience, 20*time.Millisecond, "the job does not go on: %s", job.Error(2))
			for _, v := range fourth.verdicts(t) {
				require.False(t, v.Culprit["job"] == name && v.Severity == verdict.Error && v.Status != verdict.Resolved, "a child computes: %s", v.Headline)
			}
		})
	}
}
