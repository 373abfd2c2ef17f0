package recipes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The recipes for schedulers bring rules of their own.
func TestStoriesOfTheRulesHold(t *testing.T) {
	said := commandtest.Finish(t, commandtest.New(t, "patterns", "test", "rules"))
	require.Zero(t, said.Code, "%s%s", said.Stdout, said.Stderr)
}

func TestSlurmLeadsToNodesOutOfService(t *testing.T) {
	say := func(name string) string { return exposition(t, "slurm_exporter", name) }
	e := startExporter(t, say("1-idle.txt"))
	a := startScraping(t, "slurm.yaml", "SLURM_EXPORTER", "slurm", e)
	e.turnsTo(t, say("2-drained.txt"))
	drained := a.await(t, "a drain with its reason", func(v verdict.Verdict) bool {
		return v.Pattern == "slurm_node_out" && v.Culprit["reason"] != ""
	})
	require.Equal(t, "Slurm took node-8 out of service: Xid 79 GPU has fallen off the bus", drained.Headline)
	require.Equal(t, verdict.Partial, drained.Confidence, "what runs there goes on")

	e.turnsTo(t, say("3-down.txt"))
	down := a.await(t, "a node that does not answer", about("slurm_node_out", "host", "node-9"))
	require.Equal(t, verdict.Full, down.Confidence)
	require.Equal(t, "Slurm set node-9 down", down.Evidence[0].Shows)

	e.turnsTo(t, say("4-resumed.txt"))
	back := a.await(t, "the node is back", func(v verdict.Verdict) bool { return v.Status == verdict.Resolved })
	require.Equal(t, "node-8", back.Culprit["host"])
	for _, v := range a.verdicts(t) {
		require.NotEqual(t, "node-7", v.Culprit["host"], "it was idle all along")
		require.Equal(t, "slurm_node_out", v.Pattern)
	}
}

func TestKueueLeadsToEvictions(t *testing.T) {
	say := func(name string) string { return exposition(t, "kueue", name) }
	e := startExporter(t, say("1-before.txt"))
	a := startScraping(t, "kueue.yaml", "KUEUE_METRICS", "kueue", e)
	e.turnsTo(t, say("2-evicted.txt"))
	v := a.await(t, "an eviction", about("kueue_eviction", "queue", "gpu-cluster"))
	require.Equal(t, "kueue evicted workloads of queue gpu-cluster: Preempted", v.Headline)
	require.Len(t, a.verdicts(t), 1, "admissions are none, and what was evicted before is over")
}
