package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestPatternsOfASiteAreReadWherePatternsRun: the pods that judge have the ConfigMap and
// read it, no others do, and tracecore takes the configuration.
func TestPatternsOfASiteAreReadWherePatternsRun(t *testing.T) {
	with := []string{"--set", "patterns.configMap=mine"}
	for name, tc := range map[string]struct {
		args             []string
		judge, workload  string
		others, notThere string
	}{
		"agents":  {with, "agent", "DaemonSet/agent", "", ""},
		"gateway": {append(withGateway(), with...), "gateway", "StatefulSet/gateway", "agent", "DaemonSet/agent"},
	} {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, tc.args...))
			require.Equal(t, "mine", volumeOf(t, all[tc.workload], "patterns"))
			judge := config(t, tc.judge, tc.args...)
			require.Equal(t, []any{"/etc/tracecore-patterns"}, at(t, judge, "processors", "patterndetector", "rules"))
			if tc.notThere != "" {
				require.Empty(t, volumeOf(t, all[tc.notThere], "patterns"))
				require.NotContains(t, config(t, tc.others, tc.args...)["processors"], "patterndetector")
			}
		})
	}
	require.NotContains(t, render(t), "tracecore-patterns")
}

// volumeOf is the ConfigMap of a volume that the first container of a workload mounts.
func volumeOf(t *testing.T, workload map[string]any, name string) string {
	t.Helper()
	text, err := yaml.Marshal(at(t, workload, "spec", "template", "spec"))
	require.NoError(t, err)
	var spec struct {
		Containers []struct {
			VolumeMounts []struct{ Name string } `yaml:"volumeMounts"`
		}
		Volumes []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &spec))
	for _, volume := range spec.Volumes {
		if volume.Name != name {
			continue
		}
		for _, mount := range spec.Containers[0].VolumeMounts {
			if mount.Name == name {
				return volume.ConfigMap.Name
			}
		}
	}
	return ""
}
