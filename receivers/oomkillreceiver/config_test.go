package oomkillreceiver

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	identityID := component.MustNewID("identity")
	all.Identity, all.ErrorMode, all.Pin = &identityID, record.Ignore, "/sys/fs/bpf/tracecore"
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":               {want: createDefaultConfig().(*Config)},
		"all":            {want: all},
		"bad_pin":        {problem: `pin: "bpf" is relative: give the whole path`},
		"bad_error_mode": {problem: `error_mode: "panic" is neither propagate nor ignore`},
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
