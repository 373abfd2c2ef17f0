package patterndetectorprocessor

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func (s *shelf) mute(mutes map[string]history.Mute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutes = maps.Clone(mutes)
}

// knows waits until the detector has learned how many incidents are muted.
func (r *rig) knows(t *testing.T, mutes int) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.clock.pass(0)
		r.detector.mu.Lock()
		defer r.detector.mu.Unlock()
		return r.detector.muted.incidents != nil && len(r.detector.muted.incidents) == mutes
	}, hosttest.Patience, time.Millisecond)
}

// An incident that somebody has muted is kept and not told, through a restart, until the mute
// ends.
func TestAnIncidentThatIsMutedIsKeptAndNotTold(t *testing.T) {
	first := newRig(t).start(t)
	first.fault(t, "gpu-1")
	id := first.next.verdicts[0].IncidentID // the same wherever it is evaluated

	dir, s := t.TempDir(), &shelf{}
	s.mute(map[string]history.Mute{id: {Until: began.Add(10 * time.Minute)}})
	r := newRig(t, withStorage(dir), withHistory(s), withConfig(func(c *Config) { c.Repeat = time.Minute })).start(t)
	r.knows(t, 1)
	r.fault(t, "gpu-1")
	r.fault(t, "gpu-2")
	require.Equal(t, []string{"gpu-2"}, r.next.ids())
	s.requireHas(t, "gpu-1", "gpu-2")
	r.clock.pass(5 * time.Minute)
	r.delivered(t)
	require.NotContains(t, r.next.ids(), "gpu-1", "it is not repeated either")

	after := newRig(t, withStorage(crashed(t, dir)), withHistory(s)).start(t)
	after.clock.pass(5 * time.Minute)
	after.knows(t, 1)
	require.Empty(t, after.next.ids())
	s.mute(nil)
	after.knows(t, 0)
	after.clock.pass(time.Second)
	after.delivered(t)
	require.Equal(t, []string{"gpu-1"}, after.next.ids())
}

// Who muted it leaves: the time of a mute ends it without a word of the history.
func TestAMuteOfAnIncidentEndsWithItsTime(t *testing.T) {
	first := newRig(t).start(t)
	first.fault(t, "gpu-1")
	s := &shelf{}
	s.mute(map[string]history.Mute{first.next.verdicts[0].IncidentID: {Until: began.Add(10 * time.Minute)}})
	r := newRig(t, withHistory(s)).start(t)
	r.knows(t, 1)
	r.fault(t, "gpu-1")
	require.Empty(t, r.next.ids())
	r.clock.pass(10 * time.Minute)
	r.delivered(t)
	require.Equal(t, []string{"gpu-1"}, r.next.ids())
}
