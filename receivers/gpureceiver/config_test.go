package gpureceiver

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	all := createDefaultConfig().(*Config)
	identityID := component.MustNewID("identity")
	all.Source, all.Identity, all.ErrorMode, all.Helper = DCGM, &identityID, record.Propagate, "/opt/tracecore/tracecore-gpu"
	all.NVML.Library = "/opt/nvidia/libnvidia-ml.so.1"
	all.DCGM = DCGMConfig{Endpoint: "unix:///run/dcgm.sock", LibraryFolder: "/opt/dcgm/lib", Policies: []string{"thermal", "nvlink"}}
	all.CollectionInterval, all.CallTimeout, all.RetryInterval = 30*time.Second, 5*time.Second, 2*time.Minute
	embedded := createDefaultConfig().(*Config)
	embedded.Source, embedded.DCGM.Endpoint = DCGM, "embedded"
	for name, tc := range map[string]struct {
		want    *Config
		problem string
	}{
		"":                 {want: createDefaultConfig().(*Config)},
		"all":              {want: all},
		"embedded":         {want: embedded},
		"embedded_unasked": {problem: "dcgm::endpoint: an embedded engine always answers: set source to dcgm"},
		"rocm":             {problem: `source: "rocm" is none of auto, nvml, dcgm`},
		"bad_error_mode":   {problem: `error_mode: "panic" is neither propagate nor ignore`},
		"restless":         {problem: "collection_interval: 1ms is shorter than 100ms"},
		"impatient":        {problem: "call_timeout: 0s is shorter than 100ms"},
		"stubborn":         {problem: "retry_interval: -1s is shorter than 100ms"},
		"nowhere":          {problem: `dcgm::endpoint: "localhost" is neither host:port nor unix:///path nor embedded`},
		"relative":         {problem: `dcgm::endpoint: "unix://dcgm.sock" is neither`},
		"bad_policy":       {problem: `dcgm::policies: "heat" is none of double_bit_ecc, pcie_replay`},
		"library_of_nvml":  {problem: "library"},
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
