package rankjoinprocessor

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	ncclhang "github.com/tracecoreai/tracecore/patterns/nccl_hang"
)

// Config of the processor.
type Config struct {
	// Window is how long after the last dump of a job its dumps are joined.
	Window time.Duration `mapstructure:"window"`
	// LongestWindow joins them even when dumps keep coming.
	LongestWindow time.Duration `mapstructure:"longest_window"`
	// Keep is how long after its last dump a job is remembered, so that a late
	// dump completes what was said.
	Keep time.Duration `mapstructure:"keep"`
	// MinWait is how long a rank must have waited when its dump was written;
	// below it a collective may just be under way.
	MinWait time.Duration `mapstructure:"min_wait"`
	// Limits bound what is held.
	Limits Limits `mapstructure:"limits"`
	// Storage is the id of the storage extension that keeps dumps and findings over
	// restarts. Without it a crash within the window loses them.
	Storage *component.ID `mapstructure:"storage"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Limits bound what is held.
type Limits struct {
	Jobs     int `mapstructure:"jobs"`     // jobs at once
	Dumps    int `mapstructure:"dumps"`    // records at once: ranks times their process groups
	Stalls   int `mapstructure:"stalls"`   // socket stalls at once
	Findings int `mapstructure:"findings"` // findings of one round of a job

	// prevent unkeyed literal initialization
	_ struct{}
}

func createDefaultConfig() component.Config {
	d := ncclhang.DefaultOptions
	return &Config{
		Window: d.Window, LongestWindow: d.Longest, Keep: d.Keep, MinWait: d.MinWait,
		Limits: Limits{Jobs: d.Runs, Dumps: d.Dumps, Stalls: d.Stalls, Findings: d.Findings},
	}
}

// Validate reports settings that cannot work.
func (c *Config) Validate() error {
	var errs []error
	for _, option := range []struct {
		name  string
		value int64
	}{
		{"window", int64(c.Window)},
		{"longest_window", int64(c.LongestWindow)},
		{"keep", int64(c.Keep)},
		{"limits::jobs", int64(c.Limits.Jobs)},
		{"limits::dumps", int64(c.Limits.Dumps)},
		{"limits::stalls", int64(c.Limits.Stalls)},
		{"limits::findings", int64(c.Limits.Findings)},
	} {
		if option.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than zero: leave it out for the default", option.name))
		}
	}
	if c.MinWait < 0 {
		errs = append(errs, errors.New("min_wait must not be negative: leave it out for the default"))
	}
	if c.Keep <= c.Window {
		errs = append(errs, fmt.Errorf("keep (%s) must be longer than window (%s): a job would be forgotten before its dumps are joined", c.Keep, c.Window))
	}
	return errors.Join(errs...)
}

func (c *Config) options() ncclhang.Options {
	return ncclhang.Options{
		Window: c.Window, Longest: c.LongestWindow, Keep: c.Keep, MinWait: c.MinWait,
		Runs: c.Limits.Jobs, Dumps: c.Limits.Dumps, Stalls: c.Limits.Stalls, Findings: c.Limits.Findings,
	}
}
