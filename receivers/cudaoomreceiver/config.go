package cudaoomreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/cudaoomreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows the rank processes.
	// Without it there is nobody to watch.
	Identity *component.ID `mapstructure:"identity"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
	// ScanInterval is the time between two looks for processes that have libcuda.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// Settle is how long a process may go on trying after a refusal, before it
	// counts as having given up.
	Settle time.Duration `mapstructure:"settle"`
	// MaxLibraries bounds the files of libcuda that are watched.
	MaxLibraries int `mapstructure:"max_libraries"`
	// MaxProcesses bounds the processes of ranks that are looked at in one scan.
	MaxProcesses int `mapstructure:"max_processes"`
}

// Bounds of Config.
const (
	minScanInterval = time.Second
	minSettle       = 100 * time.Millisecond
	maxSettle       = time.Minute
	maxLibraries    = 256
	maxProcesses    = 1 << 16
)

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: record.Propagate,
		// A rank needs longer than this from its first use of the GPU to a full one.
		ScanInterval: 5 * time.Second,
		// PyTorch waits for the GPU and frees its cache between two attempts.
		Settle:       3 * time.Second,
		MaxLibraries: 16, MaxProcesses: 4096,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	if c.ScanInterval < minScanInterval {
		problems = append(problems, fmt.Errorf("scan_interval: %s: set at least %s", c.ScanInterval, minScanInterval))
	}
	if c.Settle < minSettle || c.Settle > maxSettle {
		problems = append(problems, fmt.Errorf("settle: %s: set %s to %s", c.Settle, minSettle, maxSettle))
	}
	if c.MaxLibraries < 1 || c.MaxLibraries > maxLibraries {
		problems = append(problems, fmt.Errorf("max_libraries: %d: set 1 to %d", c.MaxLibraries, maxLibraries))
	}
	if c.MaxProcesses < 1 || c.MaxProcesses > maxProcesses {
		problems = append(problems, fmt.Errorf("max_processes: %d: set 1 to %d", c.MaxProcesses, maxProcesses))
	}
	return errors.Join(problems...)
}
