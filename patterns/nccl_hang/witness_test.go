package ncclhang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

// TestAFindingSaysWhoHasToldOfItsRank: by calls alone, and again when a socket of that rank stalls.
func TestAFindingSaysWhoHasToldOfItsRank(t *testing.T) {
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8, 5)...).stands(c.all(), 9, "overdue", 5)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	found := findings(j.Advance(c.at.Add(settled)))
	require.Len(t, found, 1)
	require.Equal(t, byCalls, found[0].Witnesses)
	require.Equal(t, byCalls, found[0].record(1).Attributes["nccl.collective.witnesses"])
	j = requireSameState(t, j)

	at := c.at.Add(settled + time.Second)
	stalls := plog.NewLogs()
	for rank := range 8 {
		s := socket{job: "llm", rank: rank, peer: (rank + 7) % 8, cause: "waiting", direction: "receive", at: at.Sub(written), host: "node-0", world: 8}
		s.record(stalls.ResourceLogs().AppendEmpty())
	}
	for _, rl := range stalls.ResourceLogs().All() {
		rl.ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr("gen_ai.training.job_domain", "slurm 7")
	}
	j.Add(stalls, at)
	found = findings(j.Advance(at.Add(settled)))
	require.Len(t, found, 1)
	require.Equal(t, "calls, sockets", found[0].Witnesses)
}

// A rank of which no record came is named by the calls of the others.
func TestNobodyHasToldOfARank(t *testing.T) {
	c := newCalls(8)
	for rank := range 7 {
		c.record(eventCallInit, c.all(), rank, nil)
	}
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	j.Advance(c.at.Add(settled))
	found := findings(j.Advance(c.at.Add(DefaultOptions.InitWait + settled)))
	require.Len(t, found, 1)
	require.Equal(t, NotInitialized, found[0].Kind)
	require.Equal(t, byNone, found[0].Witnesses)
}

// Where nobody is named, nobody has to tell of anyone.
func TestAHangBelowTheProgramNeedsNoWitnessOfARank(t *testing.T) {
	c := newCalls(8)
	c.stands(c.all(), 10, "overdue", but(8)...).stacks("gpu", but(8)...)
	j := newJoin(DefaultOptions)
	j.Add(c.list, c.at)
	j.Advance(c.at.Add(settled))
	found := findings(j.Advance(c.at.Add(DefaultOptions.StuckWait)))
	require.Len(t, found, 1)
	require.Empty(t, found[0].Witnesses)
}
