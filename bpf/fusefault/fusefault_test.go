//go:build linux && (amd64 || arm64)

package fusefault

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

func TestEachRungSeesADrill(t *testing.T) {
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, ok := tryOpen(t, Options{Rung: rung})
			if !ok {
				return
			}
			require.NoError(t, p.Fire(t.Context()))
			report := p.Report()
			require.Equal(t, probe.Report{
				Probe: Name, Rung: rung,
				Attempts: []probe.Attempt{{Rung: rung, Outcome: probe.OK, Fired: true}},
			}, report)
		})
	}
}
