package coverage

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

func allProbes(hook string) (probes []heartbeat.Probe) {
	for _, component := range slices.Sorted(maps.Keys(probeOf)) {
		probes = append(probes, heartbeat.Probe{Component: component, Hook: hook, Up: true})
	}
	return probes
}

// Every feature of the probes is one of a component that runs.
func TestARunningAgentDeliversEachFeature(t *testing.T) {
	there := Delivered(allProbes(identity.RungSignals), true)
	for _, feature := range check.Features() {
		require.True(t, there[feature], feature)
	}
	require.Len(t, there, len(check.Features()))
	there = Delivered(allProbes(identity.RungNotice), false)
	require.False(t, there[check.Exits])
	require.False(t, there[check.Origins])
	require.Empty(t, Delivered([]heartbeat.Probe{{Component: "receiver oomkill"}, {Component: "receiver other", Up: true}}, true))
}

// With all probes and nobody else a running agent says what bpf-check says of the kernel alone;
// where others speak, it says more.
func TestWhatRunsIsWhatBPFCheckSays(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	s, err := LoadSources()
	require.NoError(t, err)
	for _, there := range []map[check.Feature]bool{
		Delivered(allProbes(identity.RungSignals), true), Delivered(allProbes(identity.RungNotice), false), Delivered(allProbes(identity.RungSignals)[:3], true), {},
	} {
		for i := range rules {
			p := s.pattern(&rules[i], there)
			nobody := s.Running(&rules[i], there, func(*rule.Evidence) bool { return false })
			switch {
			case p.State == Blind:
				require.Equal(t, Blind, nobody, p.Name)
			case p.Alone == Blind:
				require.Equal(t, Silent, nobody, p.Name)
			case p.Alone == Degraded:
				require.Equal(t, Degraded, nobody, p.Name)
			default:
				require.Equal(t, p.State, nobody, p.Name)
			}
			require.Equal(t, p.State, s.Running(&rules[i], there, func(*rule.Evidence) bool { return true }), p.Name)
		}
	}
	at := slices.IndexFunc(rules, func(r rule.Rule) bool { return r.Name == "nvlink_degradation" })
	require.NotEqual(t, Silent, s.Running(&rules[at], map[check.Feature]bool{}, func(e *rule.Evidence) bool { return len(e.Metrics) > 0 }))
}
