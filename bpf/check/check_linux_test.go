//go:build linux && (amd64 || arm64)

package check

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

func TestMain(m *testing.M) {
	if oomkill.IsDrillChild() {
		os.Exit(oomkill.DrillChild())
	}
	if fusefault.IsDrillChild() {
		os.Exit(fusefault.DrillChild())
	}
	os.Exit(m.Run())
}

// TestEveryProbeFiresOnThisKernel is what tracecore promises on each kernel it
// is tested on. It holds the cheap look to the thorough one.
func TestEveryProbeFiresOnThisKernel(t *testing.T) {
	privtest.Require(t)
	probes := Run(t.Context())
	for _, p := range probes {
		require.Empty(t, p.Error, "%+v", p)
		require.True(t, p.Works(), "%+v", p)
		require.True(t, p.Fired, "%+v", p)
		require.Equal(t, p.Attempts[len(p.Attempts)-1].Rung, p.Rung)
		t.Logf("%s: %s", p.Probe, p.Rung)
	}
	require.Equal(t, OK, StatusOf(probes))

	rungs := func(probes []Probe) map[string]string {
		out := map[string]string{}
		for _, p := range probes {
			out[p.Probe] = p.Rung
		}
		return out
	}
	require.Equal(t, rungs(probes), rungs(Survey()))
}
