package kerneleventsreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it records have process ids alone, and there are no
	// process.exit records.
	Identity *component.ID `mapstructure:"identity"`
	// Storage is the id of the storage extension that remembers up to when the kernel
	// log was seen. With it, what the kernel said while nobody looked is read once from
	// its buffer, when the probe opens. Without it, that stays unknown.
	Storage *component.ID `mapstructure:"storage"`
	// ErrorMode says what happens when the kernel-log probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
	// ProcessExits turns exits of rank processes into records.
	ProcessExits bool `mapstructure:"process_exits"`
	// Fold says how repetitions of a fault become one record.
	Fold FoldConfig `mapstructure:"fold"`
}

// FoldConfig bounds the folds.
type FoldConfig struct {
	// Quiet closes a fold when its fault has not come again for so long.
	Quiet time.Duration `mapstructure:"quiet"`
	// Longest is how long a fold that goes on may leave unreported.
	Longest time.Duration `mapstructure:"longest"`
	// MaxOpen is how many folds may be open; beyond, the oldest closes early.
	MaxOpen int `mapstructure:"max_open"`
}

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(),
		ErrorMode:         record.Propagate,
		ProcessExits:      true,
		Fold:              FoldConfig{Quiet: time.Second, Longest: 10 * time.Second, MaxOpen: 4096},
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	if c.Fold.Quiet <= 0 {
		problems = append(problems, fmt.Errorf("fold::quiet: %s: set a time above zero, such as 1s", c.Fold.Quiet))
	}
	if c.Fold.Longest < c.Fold.Quiet {
		problems = append(problems, fmt.Errorf("fold::longest: %s is shorter than fold::quiet, %s: set at least that", c.Fold.Longest, c.Fold.Quiet))
	}
	if c.Fold.MaxOpen < 1 || c.Fold.MaxOpen > maxOpenFolds {
		problems = append(problems, fmt.Errorf("fold::max_open: %d: set 1 to %d", c.Fold.MaxOpen, maxOpenFolds))
	}
	return errors.Join(problems...)
}

// maxOpenFolds keeps the folds within some 100 MB (about 1.5 KiB each).
const maxOpenFolds = 65536
