package nvmlreceiver

import (
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig    `mapstructure:",squash"`
	metadata.MetricsBuilderConfig `mapstructure:",squash"`
	gpu.Config                    `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it a process on a GPU has its pid alone.
	Identity *component.ID `mapstructure:"identity"`
	// Library is the file of the library; by default libnvidia-ml.so.1, as the
	// dynamic linker finds it.
	Library string `mapstructure:"library"`
}

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Config: gpu.DefaultConfig(),
	}
}

// Validate reports a setting that cannot work.
func (c *Config) Validate() error { return c.Check() }
