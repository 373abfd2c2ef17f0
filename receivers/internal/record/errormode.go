package record

import "fmt"

// ErrorMode says what a probe that does not work does to the collector.
type ErrorMode string

const (
	// Propagate stops the collector.
	Propagate ErrorMode = "propagate"
	// Ignore sets the component's status and a metric, and the probe is tried again;
	// the collector, and what else the receiver does, live on.
	Ignore ErrorMode = "ignore"
)

// Check refuses a mode that there is not. (Under the name Validate the collector
// would call it too, and report each mistake twice.)
func (m ErrorMode) Check() error {
	if m != Propagate && m != Ignore {
		return fmt.Errorf("error_mode: %q is neither propagate nor ignore", string(m))
	}
	return nil
}
