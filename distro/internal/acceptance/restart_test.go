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
const asleepFor = 50 * time.Second

// TestAHangIsNamedAsSoonAfterARestart: the agent is killed, and knows at its next start that the job is at
// its steps. A rank that falls asleep then is named, though it sleeps for less than a minute.
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
			first := startAgent(t, state)
			job := first.startKnownJob(t, standin.Options{Library: library, JobID: name, Phase: 200 * time.Millisecond})
			kept := first.snapshots(t) + 7 // one a second; what is learned is kept every 5 s
			require.Eventually(t, func() bool { return first.snapshots(t) >= kept }, hosttest.Patience, 20*time.Millisecond)
			first.Kill()

			second := startAgent(t, state)
			made := cause(t, "ncclsock", "asleep after a restart")
			require.NoError(t, job.Compute(2, asleepFor))
			v := second.await(t, "the sleeping rank", func(v verdict.Verdict) bool {
				return inJob("nccl_socket_stall", name, "2")(v) && v.Severity == verdict.Error && v.Status != verdict.Resolved
			})
			made.named()
			t.Logf("named after %v: %s", made.delay.Round(time.Millisecond), v.Headline)
		})
	}
}
