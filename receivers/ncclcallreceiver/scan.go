package ncclcallreceiver

import (
	"context"
	"errors"
	"slices"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
)

// search is a source whose looks for libraries are followed by one for what is not seen.
type search struct {
	source
	r    *ncclCall
	seen chan struct{} // filled after each look for libraries
}

// Watch has the libraries of processes watched.
func (s search) Watch(processes []probe.Process) (probe.Watched, error) {
	watched, err := s.source.Watch(processes)
	if errors.Is(err, probe.ErrClosed) {
		return watched.Watched, err
	}
	s.r.unknownLibraries.Store(int64(watched.Unknown))
	select {
	case s.seen <- struct{}{}:
	default: // it is about to be asked
	}
	return watched.Watched, errors.Join(watched.Layout, err)
}

// askUnseen searches files of ranks for what is not seen, after each look for libraries and beside
// the next: a mount that is slow to answer delays no attaching.
func (s search) askUnseen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.seen:
			s.r.askUnseen(ctx, s.source)
		}
	}
}

// watched are the ranks, the lowest numbers first: the oldest. Then those that may be ranks and
// do not say so.
func (r *ncclCall) watched(ctx context.Context) []identity.Process {
	unranked, more := r.besideRanks(r.config.MaxProcesses)
	ranks, over := probereceiver.Oldest(r.resolver, r.config.MaxProcesses-len(unranked))
	r.telemetry.ReceiverNcclcallProcessesSkipped.Add(ctx, int64(over+more))
	candidates := make(map[uint32]identity.Process, len(unranked))
	for _, p := range unranked {
		candidates[p.PID] = p
	}
	r.candidates.Store(&candidates)
	return slices.Concat(ranks, unranked)
}

// scan reads where the communicators stand at each tick, until ctx ends or the probe is
// closed or broken.
func (r *ncclCall) scan(ctx context.Context, s source) error {
	ticks, stop := r.ticks(r.config.ScanInterval)
	defer stop()
	var judge probereceiver.Scans
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		scan, err := s.Scan()
		if broken := judge.Judge(err); broken != nil {
			return broken
		}
		if err != nil {
			continue
		}
		select {
		case r.scans <- scan:
		case <-ctx.Done():
			return nil
		}
	}
}
