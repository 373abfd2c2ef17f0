package kerneleventsreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	identityID := component.MustNewID("identity")
	all.Identity = &identityID
	all.ErrorMode = record.Ignore
	all.ProcessExits = false
	all.Fold = FoldConfig{Quiet: 2 * time.Second, Longest: time.Minute, MaxOpen: 128}
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":               {want: createDefaultConfig().(*Config)},
		"all":            {want: all},
		"bad_error_mode": {problem: `error_mode: "panic" is neither propagate nor ignore`},
		"bad_quiet":      {problem: "fold::quiet: 0s: set a time above zero"},
		"bad_longest":    {problem: "fold::longest: 1s is shorter than fold::quiet, 5s"},
		"bad_max_open":   {problem: "fold::max_open: 0: set 1 to 65536"},
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
