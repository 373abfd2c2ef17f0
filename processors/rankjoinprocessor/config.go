package rankjoinprocessor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/patterns"
	ncclhang "github.com/tracecoreai/tracecore/patterns/nccl_hang"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor/internal/metadata"
)

// Pattern is the one whose join this processor hosts.
const Pattern = "nccl_hang"

// Config of the processor. Its times are parameters of Pattern.
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
	// InitWait is how long ranks may come apart to a communicator that is being made.
	InitWait time.Duration `mapstructure:"init_wait"`
	// UnknownWait is how long others wait for a rank of which nobody says what it does.
	UnknownWait time.Duration `mapstructure:"unknown_wait"`
	// Stopped is how long after a rank ended because somebody ends its job others may wait for it.
	Stopped time.Duration `mapstructure:"stopped"`
	// StartWait is how long ranks may come apart to the start of their job.
	StartWait time.Duration `mapstructure:"start_wait"`
	// StuckWait is how long all ranks wait for what all have called, until that is told.
	StuckWait time.Duration `mapstructure:"stuck_wait"`
	// Settle is how long after the last record of calls those of other ranks are waited for.
	Settle time.Duration `mapstructure:"settle"`
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
	Calls    int `mapstructure:"calls"`    // processes that stopped calling, and their places in communicators
	Findings int `mapstructure:"findings"` // findings of one round of a job

	// prevent unkeyed literal initialization
	_ struct{}
}

func createDefaultConfig() component.Config {
	d := ncclhang.DefaultOptions
	return &Config{
		Window: d.Window, LongestWindow: d.Longest, Keep: d.Keep, MinWait: d.MinWait, InitWait: d.InitWait, UnknownWait: d.UnknownWait, Stopped: d.Stopped, StartWait: d.StartWait, StuckWait: d.StuckWait, Settle: d.Settle,
		Limits: Limits{Jobs: d.Runs, Dumps: d.Dumps, Stalls: d.Stalls, Calls: d.Calls, Findings: d.Findings},
	}
}

// Validate reports settings that cannot work.
func (c *Config) Validate() error {
	var errs []error
	for _, option := range []struct {
		name  string
		value int
	}{
		{"limits::jobs", c.Limits.Jobs},
		{"limits::dumps", c.Limits.Dumps},
		{"limits::stalls", c.Limits.Stalls},
		{"limits::calls", c.Limits.Calls},
		{"limits::findings", c.Limits.Findings},
	} {
		if option.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than zero: leave it out for the default", option.name))
		}
	}
	if _, err := c.Parameters(); err != nil {
		errs = append(errs, err)
	}
	if c.Keep <= c.Window {
		errs = append(errs, fmt.Errorf("keep (%s) must be longer than window (%s): a job would be forgotten before its dumps are joined", c.Keep, c.Window))
	}
	return errors.Join(errs...)
}

// Parameters are those of the pattern that this processor judges by, with the values in force.
func (c *Config) Parameters() (rule.Values, error) {
	library, err := patterns.Library()
	if err != nil {
		return nil, err
	}
	set := map[string]string{}
	for name, value := range map[string]time.Duration{
		"window": c.Window, "longest_window": c.LongestWindow, "keep": c.Keep, "min_wait": c.MinWait,
		"init_wait": c.InitWait, "unknown_wait": c.UnknownWait, "stopped": c.Stopped, "start_wait": c.StartWait, "stuck_wait": c.StuckWait, "settle": c.Settle,
	} {
		set[name] = value.String()
	}
	hosted := slices.IndexFunc(library, func(r rule.Rule) bool { return r.Name == Pattern })
	return library[hosted].Parameters.Of(metadata.Type.String(), set)
}

func (c *Config) options() ncclhang.Options {
	return ncclhang.Options{
		Window: c.Window, Longest: c.LongestWindow, Keep: c.Keep, MinWait: c.MinWait, InitWait: c.InitWait, UnknownWait: c.UnknownWait, Stopped: c.Stopped, StartWait: c.StartWait, StuckWait: c.StuckWait, Settle: c.Settle,
		Runs: c.Limits.Jobs, Dumps: c.Limits.Dumps, Stalls: c.Limits.Stalls, Calls: c.Limits.Calls, Findings: c.Limits.Findings,
	}
}
