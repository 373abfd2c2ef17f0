package nodeguard

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var now = time.Date(2026, 11, 20, 14, 2, 11, 0, time.UTC)

func TestBreakerReadsALedgerThatSomebodySpoilt(t *testing.T) {
	b := Breaker{Window: time.Hour}
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	got := b.Recent(map[string]string{"spoilt": "yes", "ahead": at(time.Hour), "young": at(-59 * time.Minute), "old": at(-61 * time.Minute)}, now)
	assert.ElementsMatch(t, []string{"spoilt", "ahead", "young"}, got)
}

func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory(10)
	for i := range 1000 {
		m.Put(fmt.Sprint(i), "x")
	}
	require.LessOrEqual(t, len(m.young)+len(m.old), 20)
	require.True(t, m.Has("999", "x"))
	require.False(t, m.Has("999", "y"))
	require.False(t, m.Has("0", "x"))
}

// A machine comes back as soon as it is well, also where the job that its fault broke is not.
func TestWhatTheFaultLedToKeepsNoNode(t *testing.T) {
	f := verdicts.Found{Verdict: verdict.Verdict{Pattern: "gpu_lost", Status: verdict.Open, Confidence: verdict.Full, Role: verdict.RootCause, Severity: verdict.Critical}, Proven: true}
	require.True(t, Judge(f, "gpu-1", true, verdict.Info).Holds)
	f.Status, f.GoesOn = verdict.Resolved, verdict.Error
	require.True(t, f.Pages(verdict.Info))
	require.False(t, Judge(f, "gpu-1", true, verdict.Info).Holds)
}

// What is mild of these patterns is a job's own doing, or somebody's deliberate act, whatever is asked for.
func TestWhatIsMildOfSomePatternsDrainsNothing(t *testing.T) {
	for pattern, drains := range map[string]map[verdict.Severity]bool{
		"xid_impact":   {verdict.Info: false, verdict.Warning: false, verdict.Error: true, verdict.Critical: true},
		"ib_link_down": {verdict.Info: false, verdict.Warning: false, verdict.Error: true},
		"ib_link_flap": {verdict.Info: true, verdict.Warning: true, verdict.Error: true},
	} {
		for severity, want := range drains {
			f := verdicts.Found{Verdict: verdict.Verdict{Pattern: pattern, Status: verdict.Open, Confidence: verdict.Full, Role: verdict.RootCause, Severity: severity}, Proven: true}
			require.Equal(t, want, Judge(f, "gpu-1", true, verdict.Info).Holds, "%s %s", pattern, severity)
		}
	}
}
