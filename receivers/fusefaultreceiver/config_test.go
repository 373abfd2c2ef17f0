package fusefaultreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

func load(t *testing.T, name string) *Config {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	config := createDefaultConfig().(*Config)
	require.NoError(t, section.Unmarshal(config))
	return config
}

func TestConfig(t *testing.T) {
	config := load(t, "")
	require.NoError(t, confmap.Validate(config))
	require.Equal(t, createDefaultConfig(), config)

	config = load(t, "all")
	require.NoError(t, confmap.Validate(config))
	require.Equal(t, component.MustNewID("identity"), *config.Identity)
	require.Equal(t, []time.Duration{2 * time.Second, 500 * time.Millisecond, 30 * time.Second, time.Minute},
		[]time.Duration{config.Threshold, config.ScanInterval, config.RepeatInterval, config.CollectionInterval})
	require.Equal(t, "/host/proc", config.ProcRoot)
	require.Equal(t, record.Ignore, config.ErrorMode)
	require.True(t, config.Events.FuseStall.Enabled)
	require.False(t, config.Events.FuseStallEnd.Enabled)
	require.False(t, config.Metrics.FuseConnectionWaiting.Enabled)
	require.True(t, config.Metrics.FuseInFlight.Enabled)
}

func TestConfigThatCannotWorkSaysAllThatIsWrong(t *testing.T) {
	err := confmap.Validate(load(t, "bad"))
	for _, problem := range []string{
		"threshold: 0s: set at least 100ms",
		"scan_interval: 1ms: set at least 100ms",
		`proc_root: "host/proc" is relative`,
		`error_mode: "panic" is neither propagate nor ignore`,
	} {
		require.ErrorContains(t, err, problem)
	}
}
