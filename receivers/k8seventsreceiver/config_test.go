package k8seventsreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/internal/apiserver"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	storageID := component.MustNewID("file_storage")
	all.Kubeconfig, all.Context, all.Namespaces, all.NodeConditions = "/etc/kubeconfig", "training", []string{"ml", "research"}, false
	all.JobLabels, all.StartupAge, all.Storage = []string{"example.com/job"}, 5*time.Minute, &storageID
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":              {want: createDefaultConfig().(*Config)},
		"all":           {want: all},
		"bad_context":   {problem: "needs kubeconfig"},
		"bad_namespace": {problem: "leave the list out to watch all"},
		"bad_age":       {problem: "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			config := createDefaultConfig()
			section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
			require.NoError(t, err)
			require.NoError(t, section.Unmarshal(config))
			if tc.problem != "" {
				require.ErrorContains(t, confmap.Validate(config), tc.problem)
				return
			}
			require.NoError(t, confmap.Validate(config))
			require.Equal(t, tc.want, config)
		})
	}
}

func TestOutsideOfAClusterTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := (&Config{}).client()
	require.ErrorContains(t, err, "run in a pod with a service account, or set kubeconfig")
	_, err = (&Config{Connection: apiserver.Connection{Kubeconfig: "/nowhere"}}).client()
	require.ErrorContains(t, err, "/nowhere")
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: a,
contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]}`), 0o600))
	client, err := (&Config{Connection: apiserver.Connection{Kubeconfig: file}}).client()
	require.NoError(t, err)
	require.NotNil(t, client)
}
