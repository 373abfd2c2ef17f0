package pyexceptionreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/pyexceptionreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows the rank processes.
	// Without it there is nobody to watch.
	Identity *component.ID `mapstructure:"identity"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
	// Messages says whether messages are read: they can hold data of the job.
	Messages bool `mapstructure:"messages"`
	// ScanInterval is the time between two looks for processes that run Python.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// MaxInterpreters bounds the files of interpreters that are watched.
	MaxInterpreters int `mapstructure:"max_interpreters"`
	// MaxProcesses bounds the processes of ranks that are looked at in one scan.
	MaxProcesses int `mapstructure:"max_processes"`
}

// Bounds of Config.
const (
	minScanInterval = 100 * time.Millisecond
	maxInterpreters = 256
	maxProcesses    = 1 << 16
)

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: record.Propagate, Messages: true,
		// A rank that fails as soon as it starts takes longer than this to import PyTorch.
		ScanInterval:    time.Second,
		MaxInterpreters: 16, MaxProcesses: 4096,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	if c.ScanInterval < minScanInterval {
		problems = append(problems, fmt.Errorf("scan_interval: %s: set at least %s", c.ScanInterval, minScanInterval))
	}
	if c.MaxInterpreters < 1 || c.MaxInterpreters > maxInterpreters {
		problems = append(problems, fmt.Errorf("max_interpreters: %d: set 1 to %d", c.MaxInterpreters, maxInterpreters))
	}
	if c.MaxProcesses < 1 || c.MaxProcesses > maxProcesses {
		problems = append(problems, fmt.Errorf("max_processes: %d: set 1 to %d", c.MaxProcesses, maxProcesses))
	}
	return errors.Join(problems...)
}
