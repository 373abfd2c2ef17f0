package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
)

func TestAMuteStandsUntilItEnds(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, dir, 1<<22)
	b.keep(t, lost("inc-1", "node-1", "llm", 1), lost("inc-2", "node-2", "llm", 1))
	mute := history.Mute{At: b.now.UTC(), Until: b.now.Add(time.Hour).UTC(), UID: 7, Reason: "OPS-1"}
	require.NoError(t, b.Mute(t.Context(), "inc-1", mute))
	require.ErrorIs(t, b.Mute(t.Context(), "inc-9", mute), ErrNotFound)
	require.NoError(t, b.Problem())
	now := b.now
	require.NoError(t, b.Close())

	b = newBench(t, dir, 1<<22)
	b.now = now
	inForce := func() map[string]history.Mute {
		mutes, err := b.Mutes(t.Context())
		require.NoError(t, err)
		return mutes
	}
	require.Equal(t, map[string]history.Mute{"inc-1": mute}, inForce())
	whole, err := b.Incident(t.Context(), "inc-1", false)
	require.NoError(t, err)
	require.Equal(t, &mute, whole.Incident.Muted)
	require.Equal(t, "critical, muted", whole.Incident.State(now))
	require.Equal(t, "critical", whole.Incident.State(mute.Until))

	// Its cause is found: it is part of that cause's incident, and so is the mute.
	joined := lost("inc-1", "node-1", "llm", 2)
	joined.IncidentID = "inc-2"
	b.keep(t, joined)
	require.Equal(t, map[string]history.Mute{"inc-2": mute}, inForce())
	require.NoError(t, b.Mute(t.Context(), "inc-1", history.Mute{}), "by its old id")
	require.Empty(t, inForce())

	require.NoError(t, b.Mute(t.Context(), "inc-2", mute))
	b.pass(time.Hour)
	require.Empty(t, inForce())
}

func TestMutesAreBounded(t *testing.T) {
	b := newBench(t, t.TempDir(), 1<<23)
	mute := history.Mute{At: b.now, Until: b.now.Add(time.Hour), Reason: "x"}
	for n := range mostMutes + 1 {
		b.keep(t, lost(fmt.Sprint("inc-", n), "node-1", "llm", 1))
		err := b.Mute(t.Context(), fmt.Sprint("inc-", n), mute)
		if n < mostMutes {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrTooMany)
		}
	}
	require.NoError(t, b.Mute(t.Context(), "inc-0", mute), "again")
	b.pass(time.Hour)
	mute.Until = b.now.Add(time.Hour)
	require.NoError(t, b.Mute(t.Context(), fmt.Sprint("inc-", mostMutes), mute), "those that ended are no more")
}
