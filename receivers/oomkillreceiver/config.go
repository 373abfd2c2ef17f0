package oomkillreceiver

import (
	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it a record has the victim's process and, from its
	// cgroup, container and pod.
	Identity *component.ID `mapstructure:"identity"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
}

func createDefaultConfig() component.Config {
	return &Config{LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: record.Propagate}
}

// Validate reports a setting that cannot work.
func (c *Config) Validate() error {
	return c.ErrorMode.Check()
}
