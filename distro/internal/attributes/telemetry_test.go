package attributes

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns"
	ncclhang "github.com/tracecoreai/tracecore/patterns/nccl_hang"
)

// telemetryOnly are the events that no pattern reads, and why. Every other event that a
// component of tracecore emits is evidence of a pattern.
var telemetryOnly = map[string]string{
	"gpu.clock_change":          "a healthy GPU changes its clocks many times a minute; slow clocks are told by thermal_throttle",
	"nccl.fr.refused":           "a file that is no dump is no fault of a job: it tells the operator which witness is missing",
	"tracecore.agent.heartbeat": "that an agent watches is no fault: the history says which machines are watched",
	"tracecore.lost":            "the engine itself reads it, for all patterns: what was lost is said with the verdicts that it touches",
	"nccl.call.init":            "that a communicator is made is no fault: ranks that wait in it are told by nccl.call.init.waiting",
}

// TestEveryEventIsReadByAPatternOrSaysWhyNot: a fault that is parsed and graded is told.
func TestEveryEventIsReadByAPatternOrSaysWhyNot(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	read := map[string]bool{}
	for i := range rules {
		for _, e := range rules[i].All() {
			for _, name := range rules[i].Events(e) {
				read[name] = true
			}
		}
		if rules[i].Detect != nil {
			for _, name := range rules[i].Detect.Logs {
				read[name] = true
			}
		}
	}
	for _, name := range ncclhang.Detector(ncclhang.DefaultOptions).Logs { // of the processor rankjoin
		read[name] = true
	}
	events := emitted(t)
	require.Greater(t, len(events), 20)
	for _, event := range slices.Sorted(maps.Keys(events)) {
		why, silent := telemetryOnly[event]
		switch {
		case read[event]:
			require.False(t, silent, "%s is read: take it out of telemetryOnly", event)
		default:
			assert.NotEmpty(t, why, "%s of %s is read by no pattern: write one, or say in telemetryOnly why not", event, events[event])
		}
	}
	for event := range telemetryOnly {
		require.Contains(t, events, event, "nobody emits it")
	}
}

// emitted are the events of all receivers and processors, with the file that declares them.
func emitted(t *testing.T) map[string]string {
	t.Helper()
	events := map[string]string{}
	for _, room := range []string{"receivers", "processors"} {
		files, err := filepath.Glob(filepath.Join("../../..", room, "*", "metadata.yaml"))
		require.NoError(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			var declared struct {
				Events map[string]any `yaml:"events"`
			}
			require.NoError(t, yaml.Unmarshal(content, &declared), file)
			for event := range declared.Events {
				events[event] = file
			}
		}
	}
	return events
}
