package k8snodeexporter

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	all.Kubeconfig, all.Context, all.MinSeverity, all.PodEvents = "/etc/kubeconfig", "training", "critical", true
	all.Conditions["thermal_throttle"], all.Conditions["our_rule"] = "", "OurFabricBroken"
	all.RequestsPerSecond, all.Timeout, all.RetryConfig.MaxElapsedTime = 2.5, 5*time.Second, time.Hour
	all.QueueConfig.Get().QueueSize = 10
	all.Mode, all.Node, all.RebootEnds, all.Refresh, all.Stale = modeAct, "gpu-17", []string{"gpu_lost"}, time.Minute, time.Hour
	all.Breaker = Breaker{Breaker: nodeguard.Breaker{Nodes: 2, Percent: 10, Window: 30 * time.Minute}, Ledger: "gpu/breaker"}
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":                   {want: createDefaultConfig().(*Config)},
		"all":                {want: all},
		"bad_context":        {problem: "needs kubeconfig"},
		"bad_severity":       {problem: `min_severity is "fatal": set it to one of`},
		"bad_rate":           {problem: "requests_per_second: must be above 0"},
		"bad_condition":      {problem: `gpu_lost: "GPU lost" is no type of a condition`},
		"kubelets_condition": {problem: "Ready is written by kubelets"},
		"many_consumers":     {problem: "num_consumers: must be 1"},
		"no_queue":           {problem: "sending_queue: enabled: must be true"},
		"bad_mode":           {problem: `mode is "drain": set it to observe or act`},
		"no_ledger":          {problem: "kubectl -n NAMESPACE create configmap NAME"},
		"bad_ledger":         {problem: "breaker: ledger"},
		"bad_breaker":        {problem: "nodes: must be 1 or more\nbreaker: percent: must be 1 to 100\nbreaker: window: must be 1m or more"},
		"bad_node":           {problem: `node: "../pods" is no name of a node`},
		"bad_stale":          {problem: "refresh: must be 1s or more"},
	} {
		t.Run(name, func(t *testing.T) {
			config := load(t, file, name)
			if tc.problem != "" {
				require.ErrorContains(t, confmap.Validate(config), tc.problem)
				return
			}
			require.NoError(t, confmap.Validate(config))
			require.Equal(t, tc.want, config)
		})
	}
}

func load(t *testing.T, file *confmap.Conf, name string) *Config {
	t.Helper()
	config := createDefaultConfig().(*Config)
	section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	require.NoError(t, section.Unmarshal(config))
	return config
}

// TestConditionsAreOfPatternsThatExist keeps the table with the catalogue.
func TestConditionsAreOfTheFaultsOfMachines(t *testing.T) {
	require.ElementsMatch(t, nodeguard.MachineFaults(), slices.Collect(maps.Keys(hardwareConditions())))
}
