package patterndetectorprocessor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// A pattern that is switched off tells nothing any more, so the verdicts that it had open
// are ended, once.
func TestAPatternThatIsSwitchedOffEndsItsVerdicts(t *testing.T) {
	off := withConfig(func(c *Config) { c.Patterns = map[string]map[string]any{"test_pair": {"enabled": false}} })
	dir := t.TempDir()
	before := newRig(t, withStorage(dir)).start(t)
	before.fault(t, "gpu-1")
	before.stop(t)
	require.Len(t, before.next.verdicts, 1)

	after := newRig(t, withStorage(dir), off).start(t)
	after.clock.pass(time.Second)
	after.delivered(t)
	require.Len(t, after.next.verdicts, 1)
	ended := after.next.verdicts[0]
	require.Equal(t, before.next.verdicts[0].ID, ended.ID, "the same verdict")
	require.Equal(t, verdict.Resolved, ended.Status)
	require.Equal(t, "switched_off", ended.Evidence[len(ended.Evidence)-1].Name)
	after.fault(t, "gpu-1")
	require.Len(t, after.next.verdicts, 1)
	require.Zero(t, after.stats().OpenVerdicts)

	crash := crashed(t, dir)
	after.stop(t)
	for name, again := range map[string]string{"after a crash": crash, "after a stop": dir} {
		once := newRig(t, withStorage(again), off).start(t)
		once.clock.pass(time.Minute)
		once.delivered(t)
		require.Empty(t, once.next.verdicts, name)
	}
}
