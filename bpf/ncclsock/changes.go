//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// ReadChange waits for the next change of a socket that a snapshot has shown or
// that an owner has begun to connect since. It returns probe.ErrClosed after
// Close; on a rung without changes it waits for that alone.
func (p *Probe) ReadChange(c *Change) error {
	for {
		err := p.source.readChange(c)
		switch {
		case err == nil:
			p.events.Add(1)
			return nil
		case errors.Is(err, errInvalid):
			p.invalid.Add(1)
		case errors.Is(err, probe.ErrClosed):
			return probe.ErrClosed
		default:
			return fmt.Errorf("read %s: %w", Name, err)
		}
	}
}
