package fusefaultreceiver

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig    `mapstructure:",squash"`
	metadata.MetricsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it a record has the waiting process and no more.
	Identity *component.ID `mapstructure:"identity"`
	// Threshold is how old a request or fault is when its mount is said to stall.
	Threshold time.Duration `mapstructure:"threshold"`
	// ScanInterval is the time between two looks at what is in flight.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// RepeatInterval is the time after which a stall that lasts is told again.
	RepeatInterval time.Duration `mapstructure:"repeat_interval"`
	// CollectionInterval is the time between two deliveries of metrics.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// ProcRoot is where the host's /proc is mounted; empty means HOST_PROC from
	// the environment, else /proc.
	ProcRoot string `mapstructure:"proc_root"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
}

// minInterval keeps a typing error from making scans a load.
const minInterval = 100 * time.Millisecond

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Threshold: time.Second, ScanInterval: time.Second, RepeatInterval: 10 * time.Second, CollectionInterval: 10 * time.Second,
		ErrorMode: record.Propagate,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	for _, setting := range []struct {
		name  string
		value time.Duration
	}{
		{"threshold", c.Threshold},
		{"scan_interval", c.ScanInterval},
		{"repeat_interval", c.RepeatInterval},
		{"collection_interval", c.CollectionInterval},
	} {
		if setting.value < minInterval {
			problems = append(problems, fmt.Errorf("%s: %s: set at least %s", setting.name, setting.value, minInterval))
		}
	}
	if c.ProcRoot != "" && !filepath.IsAbs(c.ProcRoot) {
		problems = append(problems, fmt.Errorf("proc_root: %q is relative: give the whole path, such as /host/proc", c.ProcRoot))
	}
	return errors.Join(problems...)
}
