package probereceiver

import (
	"errors"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Events reads events one by one until the probe is closed or broken. Each has
// memory of its own, so that handle may keep it.
func Events[E any](read func(*E) error, handle func(*E)) error {
	for {
		event := new(E)
		if err := read(event); err != nil {
			return err
		}
		handle(event)
	}
}

// MaxFailures is how many scans in a row may fail before the probe counts as broken:
// what the kernel refuses now (memory, a limit of files) it may give a second later.
const MaxFailures = 10

// Scans judges the scans of a probe.
type Scans struct{ failures int }

// Judge takes the outcome of one scan. It returns an error when the probe is closed
// or counts as broken.
func (s *Scans) Judge(err error) error {
	switch s.failures++; {
	case err == nil:
		s.failures = 0
	case errors.Is(err, probe.ErrClosed) || s.failures >= MaxFailures:
		s.failures = 0
		return err
	}
	return nil
}
