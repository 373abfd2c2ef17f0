package nodeguard

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
)

// TestACauseOfAMachinesFaultIsOne: a verdict that another explains drains nothing, so what
// explains it must.
func TestACauseOfAMachinesFaultIsOne(t *testing.T) {
	ours := MachineFaults()
	for _, name := range RebootEnds() {
		require.Contains(t, ours, name)
	}
	others := map[string]string{
		"host_oom_kill": "the kernel killed the process whose Xid it explains, which asks for nothing: the machine is well",
		"gpu_fault":     "a tenant can cause it, and it explains none of these",
	}
	known := map[string]bool{}
	rules, err := patterns.Library()
	require.NoError(t, err)
	for _, r := range rules {
		known[r.Name] = true
		for _, x := range r.Explains {
			if slices.Contains(ours, x.Pattern) && others[r.Name] == "" {
				require.Contains(t, ours, r.Name, "it explains %s", x.Pattern)
			}
		}
	}
	for _, name := range ours {
		require.True(t, known[name], name)
	}
}
