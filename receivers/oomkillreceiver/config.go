package oomkillreceiver

import (
	"errors"

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
	// Pin is a folder in a BPF file system, such as /sys/fs/bpf/tracecore. There the probe
	// outlives this process: what happens until the next start is told then, as late.
	// Empty: nowhere, and what an earlier process has pinned in that folder is removed.
	Pin string `mapstructure:"pin"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
}

func createDefaultConfig() component.Config {
	return &Config{LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: record.Propagate}
}

// Validate reports a setting that cannot work.
func (c *Config) Validate() error {
	return errors.Join(c.ErrorMode.Check(), record.CheckPin(c.Pin))
}
