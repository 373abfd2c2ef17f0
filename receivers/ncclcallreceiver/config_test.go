package ncclcallreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	identityID, storageID := component.MustNewID("identity"), component.MustNewID("file_storage")
	all.Identity, all.Storage, all.ErrorMode = &identityID, &storageID, record.Ignore
	all.ScanInterval, all.LookInterval, all.Patience = 500*time.Millisecond, time.Second, 30*time.Second
	all.MaxLibraries, all.MaxProcesses, all.MaxSteppedCalls = 4, 100, 1000
	for name, want := range map[string]*Config{"": createDefaultConfig().(*Config), "all": all} {
		require.Equal(t, want, load(t, file, name), name)
		require.NoError(t, confmap.Validate(want))
	}
	err = confmap.Validate(load(t, file, "bad"))
	for _, problem := range []string{
		`error_mode: "panic" is neither propagate nor ignore`, "scan_interval: 1ms: set at least 100ms", "look_interval: 1ms: set at least 1s",
		"patience: 2h0m0s: set 1s to 1h0m0s", "max_libraries: 0: set 1 to 63", "max_processes: 0: set 1 to 65536",
		"max_stepped_calls: 0.5: set 1 to 50000",
	} {
		require.ErrorContains(t, err, problem)
	}
}

func load(t *testing.T, file *confmap.Conf, name string) *Config {
	t.Helper()
	config := createDefaultConfig()
	section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	require.NoError(t, section.Unmarshal(config))
	return config.(*Config)
}
