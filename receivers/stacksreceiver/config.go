package stacksreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/stacksreceiver/internal/metadata"
)

// Mode says whose frames leave the node.
type Mode string

// The modes.
const (
	// Off: no stack is taken.
	Off Mode = "off"
	// Culprit: those of ranks that do not wait in a collective. The others have the wait class,
	// the hash and the function of the library, and their line once they wait for longer than is usual.
	Culprit Mode = "culprit"
	// All: those of every rank.
	All Mode = "all"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows the rank processes.
	// Without it there is nobody to watch.
	Identity *component.ID `mapstructure:"identity"`
	// Storage is the id of the storage extension that keeps what is known of ranks for the
	// next start. Without it each start learns their pauses anew.
	Storage *component.ID `mapstructure:"storage"`
	// ErrorMode says what happens when stacks cannot be taken.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
	// Stacks says whose frames leave the node: off, culprit or all.
	Stacks Mode `mapstructure:"stacks"`
	// ScanInterval is the time between two looks at the main threads of ranks. One that has
	// not run from a look to the second after it stands still.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// LookInterval is the time between two looks for ranks.
	LookInterval time.Duration `mapstructure:"look_interval"`
	// Patience is how long a thread that runs may be in the same call of Python.
	Patience time.Duration `mapstructure:"patience"`
	// MaxProcesses bounds the processes that are followed.
	MaxProcesses int `mapstructure:"max_processes"`
	// MaxFrames bounds the frames of a record.
	MaxFrames int `mapstructure:"max_frames"`
}

// Bounds of Config.
const (
	minScanInterval = 100 * time.Millisecond
	minLookInterval = time.Second
	minPatience     = time.Second
	maxPatience     = time.Hour
	maxProcesses    = 4096
	maxFrames       = 128
)

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: record.Propagate, Stacks: Culprit,
		ScanInterval: time.Second, LookInterval: 5 * time.Second,
		// A rank at work is nine times of ten in the same call as a second ago.
		Patience:     20 * time.Second,
		MaxProcesses: 256, MaxFrames: 32,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	if c.Stacks != Off && c.Stacks != Culprit && c.Stacks != All {
		problems = append(problems, fmt.Errorf("stacks: %q is none of off, culprit and all", c.Stacks))
	}
	if c.ScanInterval < minScanInterval {
		problems = append(problems, fmt.Errorf("scan_interval: %s: set at least %s", c.ScanInterval, minScanInterval))
	}
	if c.LookInterval < minLookInterval {
		problems = append(problems, fmt.Errorf("look_interval: %s: set at least %s", c.LookInterval, minLookInterval))
	}
	if c.Patience < minPatience || c.Patience > maxPatience {
		problems = append(problems, fmt.Errorf("patience: %s: set %s to %s", c.Patience, minPatience, maxPatience))
	}
	if c.MaxProcesses < 1 || c.MaxProcesses > maxProcesses {
		problems = append(problems, fmt.Errorf("max_processes: %d: set 1 to %d", c.MaxProcesses, maxProcesses))
	}
	if c.MaxFrames < 1 || c.MaxFrames > maxFrames {
		problems = append(problems, fmt.Errorf("max_frames: %d: set 1 to %d", c.MaxFrames, maxFrames))
	}
	return errors.Join(problems...)
}
