package recipes

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/slurmtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// TestSlurmDrainsAndResumes: Slurm's own controller drains the node of a verdict, with its
// reason, and takes it back when the verdict is over. It drains nothing for a verdict that is
// not certain, and a node that somebody drained by hand stays drained, with their reason.
func TestSlurmDrainsAndResumes(t *testing.T) {
	slurm := slurmtest.Start(t, "node", 8) // node-7 is the agent's
	t.Setenv("SCONTROL", slurm.Scontrol)
	t.Setenv("SLURM_MODE", "act")
	otlp := hosttest.FreeAddress(t)
	a := start(t, "slurm-drain.yaml", "--set=receivers.otlp.senders=agents", "--set=receivers.otlp.protocols.http.endpoint="+otlp, "--set=exporters.slurm.breaker.percent=50")
	on := func(node string, v verdict.Verdict) verdict.Verdict {
		v.Culprit = maps.Clone(v.Culprit)
		v.Culprit["host"], v.Culprit["node"] = node, node
		return v
	}
	drained := func(t require.TestingT, node string) bool { // beside what else its state says: no slurmd answers
		return slices.Contains(strings.Split(slurm.Node(t, node)["State"], "+"), "DRAIN")
	}
	becomes := func(node string, out bool) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, out, drained(c, node)) }, patience, 20*time.Millisecond, "%s", a.Stderr)
	}

	slurm.Run(t, "update", "nodename=node-5", "state=drain", "reason=disk swap")
	likely, drill := on("node-3", verdictOf("likely")), on("node-4", verdictOf("drill"))
	likely.Confidence, drill.Drill = verdict.Partial, true
	lost, theirs := on(host, verdictOf("lost")), on("node-5", verdictOf("theirs"))
	tell(t, otlp, likely, drill, theirs, lost)
	becomes(host, true)
	require.Contains(t, slurm.Node(t, host)["Reason"], "tracecore: gpu_lost/lost: GPU lost has fallen off the bus")
	why, err := exec.Command(strings.TrimSuffix(slurm.Scontrol, "scontrol")+"sinfo", "-R", "--noheader", "-o", "%N|%E").CombinedOutput()
	require.NoError(t, err, "%s", why)
	require.ElementsMatch(t, []string{host + "|tracecore: gpu_lost/lost: GPU lost has fallen off the bus", "node-5|disk swap"}, strings.Split(strings.TrimSpace(string(why)), "\n"))

	end := func(v verdict.Verdict) verdict.Verdict {
		now := time.Now()
		v.Status, v.Revision, v.Resolved, v.Updated = verdict.Resolved, 2, &now, now
		return v
	}
	tell(t, otlp, end(theirs), end(lost))
	becomes(host, false)
	require.NotContains(t, slurm.Node(t, host), "Reason")
	require.True(t, drained(t, "node-5"), "it is theirs")
	require.Contains(t, slurm.Node(t, "node-5")["Reason"], "disk swap")
	for _, node := range []string{"node-3", "node-4"} {
		require.False(t, drained(t, node))
	}
}
