package ncclsockreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	identityID, storageID := component.MustNewID("identity"), component.MustNewID("file_storage")
	all.Identity, all.Storage, all.ErrorMode = &identityID, &storageID, record.Ignore
	all.SnapshotInterval, all.MetricsInterval, all.RepeatInterval = 500*time.Millisecond, 30*time.Second, 20*time.Second
	all.Patience = Patience{time.Second, 4 * time.Second, 5 * time.Minute, 30 * time.Second, 6 * time.Second, 3 * time.Second, 7 * time.Second}
	all.Phases = Phases{3, 20, 90 * time.Second, 20 * time.Second, 2 * time.Hour}
	all.RankPortsFrom, all.MaxProcesses, all.MaxSockets, all.MaxStalls, all.MaxPeers = 10000, 100, 1000, 10, 20
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":               {want: createDefaultConfig().(*Config)},
		"all":            {want: all},
		"bad_error_mode": {problem: `error_mode: "panic" is neither propagate nor ignore`},
		"restless":       {problem: "snapshot_interval: 1ms is shorter than 100ms"},
		"impatient":      {problem: "patience::network: 0s is shorter than snapshot_interval"},
		"no_phases":      {problem: "phases: unlearned, found and memory must be longer than 0"},
		"no_room":        {problem: "each must be at least 1"},
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

func TestDefaultsAreThoseOfTheTracker(t *testing.T) {
	require.Equal(t, stall.Defaults(), createDefaultConfig().(*Config).options())
}
