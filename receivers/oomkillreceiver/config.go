package oomkillreceiver

import (
	"fmt"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/oomkillreceiver/internal/metadata"
)

// ErrorMode says what a probe that does not work does to the collector.
type ErrorMode string

const (
	// ErrorModePropagate stops the collector.
	ErrorModePropagate ErrorMode = "propagate"
	// ErrorModeIgnore sets the component's status and a metric; the collector
	// lives on.
	ErrorModeIgnore ErrorMode = "ignore"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it a record has the victim's process and, from its
	// cgroup, container and pod.
	Identity *component.ID `mapstructure:"identity"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode ErrorMode `mapstructure:"error_mode"`
}

func createDefaultConfig() component.Config {
	return &Config{LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: ErrorModePropagate}
}

// Validate reports a setting that cannot work.
func (c *Config) Validate() error {
	if c.ErrorMode != ErrorModePropagate && c.ErrorMode != ErrorModeIgnore {
		return fmt.Errorf("error_mode: %q is neither propagate nor ignore", c.ErrorMode)
	}
	return nil
}
