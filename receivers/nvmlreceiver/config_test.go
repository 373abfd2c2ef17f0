package nvmlreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	identityID := component.MustNewID("identity")
	all.Identity, all.ErrorMode = &identityID, record.Propagate
	all.Helper, all.Library = "/opt/tracecore/tracecore-nvml", "/opt/nvidia/libnvidia-ml.so.1"
	all.CollectionInterval, all.CallTimeout, all.RetryInterval = 30*time.Second, 5*time.Second, 2*time.Minute
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":               {want: createDefaultConfig().(*Config)},
		"all":            {want: all},
		"bad_error_mode": {problem: `error_mode: "panic" is neither propagate nor ignore`},
		"restless":       {problem: "collection_interval: 1ms is shorter than 100ms"},
		"impatient":      {problem: "call_timeout: 0s is shorter than 100ms"},
		"stubborn":       {problem: "retry_interval: -1s is shorter than 100ms"},
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
