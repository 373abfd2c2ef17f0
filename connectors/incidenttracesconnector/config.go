package incidenttracesconnector

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Config says when a trace leaves, and how much is kept until then.
type Config struct {
	// Settle is how long an incident whose root cause is resolved may have symptoms that
	// are not: some never say that they are over.
	Settle time.Duration `mapstructure:"settle"`

	// Idle is how long an open incident is kept of which nothing is told.
	Idle time.Duration `mapstructure:"idle"`

	// Incidents is how many are kept. Beyond it the trace of one leaves before its end.
	Incidents int `mapstructure:"incidents"`

	// prevent unkeyed literal initialization
	_ struct{}
}

func createDefaultConfig() component.Config {
	return &Config{Settle: 10 * time.Minute, Idle: 24 * time.Hour, Incidents: 2_000}
}

// Validate names each option that is not positive.
func (c *Config) Validate() error {
	var errs []error
	for _, option := range []struct {
		name  string
		value int64
	}{{"settle", int64(c.Settle)}, {"idle", int64(c.Idle)}, {"incidents", int64(c.Incidents)}} {
		if option.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than zero: leave it out for the default", option.name))
		}
	}
	return errors.Join(errs...)
}
