package store

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
)

func (b *bench) evidence(t *testing.T, id string) string {
	t.Helper()
	evidence, err := b.Evidence(t.Context(), id)
	require.NoError(t, err)
	return string(evidence)
}

func TestEvidenceIsKeptBesideItsIncident(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, dir, 1<<22)
	require.ErrorIs(t, b.KeepEvidence(t.Context(), "inc-1", []byte("nobody's")), history.ErrNotFound)
	b.keep(t, lost("inc-1", "node-17", "llm", 1), killed("inc-2", "node-18", "llm", 3))
	require.NoError(t, b.KeepEvidence(t.Context(), "inc-1", []byte("first")))
	require.NoError(t, b.KeepEvidence(t.Context(), "inc-1", []byte("second")))
	require.NoError(t, b.KeepEvidence(t.Context(), "inc-2", []byte("of the symptom")))
	require.NoError(t, b.Close())

	b = newBench(t, dir, 1<<22)
	recalled, err := b.Recall(t.Context(), "inc-1")
	require.NoError(t, err)
	require.Equal(t, "second", string(recalled.Evidence))
	require.Equal(t, "inc-1", recalled.Incident)
	require.Len(t, recalled.Verdicts, 1)
	require.Error(t, b.KeepEvidence(t.Context(), "inc-1", make([]byte, recalled.Room+1)))
	require.NoError(t, b.KeepEvidence(t.Context(), "inc-1", make([]byte, recalled.Room)))

	// The cause of a symptom is found: what was kept of the symptom is its incident's where
	// that has none.
	b.keep(t, lost("inc-3", "node-18", "llm", 1))
	moved := killed("inc-2", "node-18", "llm", 3)
	moved.IncidentID, moved.Revision = "inc-3", 2
	b.keep(t, moved)
	require.Equal(t, "of the symptom", b.evidence(t, "inc-3"))
	require.Empty(t, b.evidence(t, "inc-2"))
	recalled, err = b.Recall(t.Context(), "inc-2")
	require.NoError(t, err)
	require.Equal(t, "inc-3", recalled.Incident)
	require.NoError(t, b.KeepEvidence(t.Context(), "inc-2", []byte("under its old name")))
	require.Equal(t, "under its old name", b.evidence(t, "inc-3"))

	// What is damaged is left out.
	require.NoError(t, b.do(t.Context(), func(ctx context.Context) error {
		_, err := b.conn.ExecContext(ctx, "UPDATE evidence SET body = x'00' WHERE incident_id = 'inc-3'")
		return err
	}))
	require.Empty(t, b.evidence(t, "inc-3"))
	require.Equal(t, 1, b.damaged)
}

// Evidence counts as room of its incident, and leaves with it.
func TestEvidenceGivesWayWithItsIncident(t *testing.T) {
	const most = 1 << 20
	b := newBench(t, t.TempDir(), most)
	keep := func(id string) {
		b.keep(t, lost(id, "node-1", "llm", 1))
		require.NoError(t, b.KeepEvidence(t.Context(), id, bytes.Repeat([]byte(id[:1]), b.evidenceRoom())))
	}
	for n := range 200 { // 3 MiB
		keep(fmt.Sprint("inc-", n))
	}
	require.Positive(t, b.evicted)
	sum, err := b.Summary(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, sum.Bytes, int64(most))
	require.Equal(t, "i", b.evidence(t, "inc-199")[:1])
	var orphans int
	require.NoError(t, b.do(t.Context(), func(ctx context.Context) error {
		return b.conn.QueryRowContext(ctx, "SELECT count(*) FROM evidence WHERE incident_id NOT IN (SELECT incident_id FROM incidents)").Scan(&orphans)
	}))
	require.Zero(t, orphans)
}
