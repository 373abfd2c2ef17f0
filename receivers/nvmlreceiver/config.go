package nvmlreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/nvmlreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig    `mapstructure:",squash"`
	metadata.MetricsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it a process on a GPU has its pid alone.
	Identity *component.ID `mapstructure:"identity"`
	// ErrorMode says what a library that is not ready at the start does to the
	// collector.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`

	// Helper is the program that loads the library. By default tracecore-nvml
	// beside the collector's own file, else in PATH.
	Helper string `mapstructure:"helper"`
	// Library is the file of the library; by default libnvidia-ml.so.1, as the
	// dynamic linker finds it.
	Library string `mapstructure:"library"`

	// CollectionInterval is the time between two readings.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// CallTimeout is how long a call of the library may take before it hangs.
	CallTimeout time.Duration `mapstructure:"call_timeout"`
	// RetryInterval is the time between two attempts to load the library.
	RetryInterval time.Duration `mapstructure:"retry_interval"`
}

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		ErrorMode: record.Ignore, CollectionInterval: 10 * time.Second, CallTimeout: 10 * time.Second, RetryInterval: time.Minute,
	}
}

// Bounds of the settings: reading a GPU takes 40 ms for its PCIe rates alone.
const (
	minInterval = 100 * time.Millisecond
	minTimeout  = 100 * time.Millisecond
)

// Validate reports a setting that cannot work.
func (c *Config) Validate() error {
	var problems []error
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"collection_interval", c.CollectionInterval, minInterval},
		{"call_timeout", c.CallTimeout, minTimeout},
		{"retry_interval", c.RetryInterval, minInterval},
	} {
		if d.value < d.least {
			problems = append(problems, fmt.Errorf("%s: %v is shorter than %v", d.name, d.value, d.least))
		}
	}
	return errors.Join(append(problems, c.ErrorMode.Check())...)
}
