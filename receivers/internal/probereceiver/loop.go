package probereceiver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/fairlru"
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

// Search looks for what ranks have loaded, now and at each tick, until ctx ends or the probe
// is closed. It needs a goroutine of its own: a process or a file system that hangs can hold
// look up. What look could not see is logged as unseen, once until it is something else.
func Search(ctx context.Context, ticks Ticks, interval time.Duration, log *zap.Logger, unseen string, look func() error) {
	due, stop := ticks(interval)
	defer stop()
	said := ""
	for {
		err := look()
		if errors.Is(err, probe.ErrClosed) {
			return
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			log.Warn(unseen, zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		}
	}
}

// Oldest returns the processes of ranks, so many at most, and how many there are beyond them.
// Domains, pods and jobs share the room, so that nobody hides the ranks of another behind
// thousands of his own; of one job those that a launcher started stay, then those with the
// lowest numbers.
func Oldest(resolver identity.Resolver, most int) (ranks []identity.Process, over int) {
	ranks = resolver.Ranks()
	over = max(0, len(ranks)-most)
	launched := func(p identity.Process) int {
		if p.Inherited {
			return 0
		}
		return 1
	}
	slices.SortFunc(ranks, func(a, b identity.Process) int { // Trim keeps the last
		return cmp.Or(cmp.Compare(launched(a), launched(b)), cmp.Compare(b.PID, a.PID))
	})
	ranks = fairlru.Trim(ranks, most, func(p identity.Process) []string {
		return []string{p.Domain, cmp.Or(p.PodUID, p.ContainerID), p.JobID}
	})
	slices.SortFunc(ranks, func(a, b identity.Process) int { return cmp.Compare(a.PID, b.PID) })
	return ranks, over
}
