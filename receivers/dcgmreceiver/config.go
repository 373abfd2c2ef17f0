package dcgmreceiver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig    `mapstructure:",squash"`
	metadata.MetricsBuilderConfig `mapstructure:",squash"`
	gpu.Config                    `mapstructure:",squash"`

	// Endpoint of the host engine: host:port, unix:///path, or embedded for one
	// within the helper.
	Endpoint string `mapstructure:"endpoint"`
	// LibraryFolder is where libdcgm.so.4 is, if the dynamic linker does not know.
	LibraryFolder string `mapstructure:"library_folder"`
	// Profiling reads what the profiling module measures. Another profiler on the
	// node (Nsight) cannot run at the same time.
	Profiling bool `mapstructure:"profiling"`
	// Health has the engine watch the health of the GPUs.
	Health bool `mapstructure:"health"`
	// Policies are the conditions for which a policy is set where nobody set one,
	// with DCGM's own thresholds and no action. Violations of all that are set are
	// told.
	Policies []string `mapstructure:"policies"`
}

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Config: gpu.DefaultConfig(), Endpoint: "127.0.0.1:5555", Profiling: true, Health: true,
	}
}

// Validate reports a setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.Check(), checkEndpoint(c.Endpoint)}
	for _, policy := range c.Policies {
		if !slices.Contains(dcgm.Policies(), policy) {
			problems = append(problems, fmt.Errorf("policies: %q is none of %s", policy, strings.Join(dcgm.Policies(), ", ")))
		}
	}
	return errors.Join(problems...)
}

func checkEndpoint(endpoint string) error {
	if path, socket := strings.CutPrefix(endpoint, "unix://"); socket && strings.HasPrefix(path, "/") || endpoint == dcgm.Embedded {
		return nil
	}
	_, port, err := net.SplitHostPort(endpoint)
	if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 {
		return fmt.Errorf("endpoint: %q is neither host:port nor unix:///path nor embedded", endpoint)
	}
	return nil
}
