package identityextension

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/extensions/identityextension/internal/metadata"
)

func load(t *testing.T, name string) (*Config, error) {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := conf.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	config := createDefaultConfig().(*Config)
	if err := sub.Unmarshal(config); err != nil {
		return nil, err
	}
	return config, confmap.Validate(config)
}

func TestConfigIsReadAndChecked(t *testing.T) {
	config, err := load(t, "")
	require.NoError(t, err)
	require.Equal(t, createDefaultConfig(), config)
	require.Equal(t, identity.Options{Retention: 10 * time.Minute, MaxProcesses: 65536, ScanInterval: 2 * time.Second}, config.options())

	config, err = load(t, "all")
	require.NoError(t, err)
	require.Equal(t, ErrorModePropagate, config.ErrorMode)
	require.Equal(t, identity.Options{
		ProcRoot: "/host/proc", Retention: 30 * time.Minute, MaxProcesses: 200000, ScanInterval: 5 * time.Second, Pin: "/sys/fs/bpf/tracecore",
	}, config.options())

	_, err = load(t, "bad")
	for _, want := range []string{
		`proc_root: "host/proc" is relative: give the whole path`, "retention: 0s: set a time above zero",
		"max_processes: 10: set 1024 to 1048576", "scan_interval: 1ms: set at least 100ms", `drill_secret: "drill.secret" is relative`, `pin: "bpf" is relative: give the whole path`, `error_mode: "maybe" is neither propagate nor ignore`,
	} {
		require.ErrorContains(t, err, want)
	}

	_, err = load(t, "unknown")
	require.ErrorContains(t, err, "retension")
}
