package gpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Config is the settings that all such receivers have.
type Config struct {
	// ErrorMode says what a library that is not ready at the start does to the
	// collector.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`

	// Helper is the program that loads the library. By default the one beside the
	// collector's own file, else in PATH.
	Helper string `mapstructure:"helper"`

	// CollectionInterval is the time between two readings.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// CallTimeout is how long a call of the library may take before it hangs.
	CallTimeout time.Duration `mapstructure:"call_timeout"`
	// RetryInterval is the time between two attempts to load the library.
	RetryInterval time.Duration `mapstructure:"retry_interval"`
}

// DefaultConfig is a reading every ten seconds.
func DefaultConfig() Config {
	return Config{ErrorMode: record.Ignore, CollectionInterval: 10 * time.Second, CallTimeout: 10 * time.Second, RetryInterval: time.Minute}
}

// MinInterval bounds the settings: reading a GPU takes 40 ms for its PCIe rates
// alone.
const MinInterval = 100 * time.Millisecond

// Check reports settings that cannot work.
func (c *Config) Check() error {
	var problems []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"collection_interval", c.CollectionInterval}, {"call_timeout", c.CallTimeout}, {"retry_interval", c.RetryInterval},
	} {
		if d.value < MinInterval {
			problems = append(problems, fmt.Errorf("%s: %v is shorter than %v", d.name, d.value, MinInterval))
		}
	}
	return errors.Join(append(problems, c.ErrorMode.Check())...)
}
