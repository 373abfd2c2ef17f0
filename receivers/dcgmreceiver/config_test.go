package dcgmreceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	all.ErrorMode, all.Helper = record.Propagate, "/opt/tracecore/tracecore-dcgm"
	all.Endpoint, all.LibraryFolder, all.Profiling, all.Health, all.Policies = "unix:///run/dcgm.sock", "/opt/dcgm/lib", false, false, []string{"thermal", "nvlink"}
	all.CollectionInterval, all.CallTimeout, all.RetryInterval = 30*time.Second, 5*time.Second, 2*time.Minute
	embedded := createDefaultConfig().(*Config)
	embedded.Endpoint = "embedded"
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":              {want: createDefaultConfig().(*Config)},
		"all":           {want: all},
		"embedded":      {want: embedded},
		"restless":      {problem: "collection_interval: 1ms is shorter than 100ms"},
		"nowhere":       {problem: `endpoint: "localhost" is neither host:port nor unix:///path nor embedded`},
		"relative":      {problem: `endpoint: "unix://dcgm.sock" is neither`},
		"bad_policy":    {problem: `policies: "heat" is none of double_bit_ecc, pcie_replay`},
		"wrong_library": {problem: "library"},
	} {
		t.Run(name, func(t *testing.T) {
			config := createDefaultConfig()
			section, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
			require.NoError(t, err)
			err = section.Unmarshal(config)
			if err == nil {
				err = confmap.Validate(config)
			}
			if tc.problem != "" {
				require.ErrorContains(t, err, tc.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, config)
		})
	}
}
