package ncclcallreceiver

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/ncclcall"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
)

// search looks for the libraries of the ranks until ctx ends or the probe is closed. Beside it, files
// of ranks are searched for what is not seen: a mount that is slow to answer delays no attaching.
func (r *ncclCall) search(ctx context.Context, s source) {
	ask := make(chan struct{}, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		for range ask {
			r.askUnseen(ctx, s)
		}
	})
	defer asking.Wait()
	defer close(ask)
	probereceiver.Search(ctx, r.ticks, r.config.LookInterval, r.settings.Logger, "calls of NCCL of some processes go unseen, or without their rank", func() error {
		watched, err := s.Watch(r.processes(ctx))
		if errors.Is(err, probe.ErrClosed) {
			return err
		}
		r.watched.Store(&watched)
		r.telemetry.ReceiverNcclcallProcessesSkipped.Add(ctx, int64(watched.Unreadable))
		select {
		case ask <- struct{}{}:
		default: // it is about to be asked
		}
		return errors.Join(watched.Err, watched.Layout, err)
	})
}

// processes are those of the ranks, the lowest numbers first: the oldest. Then those that may be
// ranks and do not say so.
func (r *ncclCall) processes(ctx context.Context) []ncclcall.Process {
	unranked, more := r.besideRanks(r.config.MaxProcesses)
	ranks, over := probereceiver.Oldest(r.resolver, r.config.MaxProcesses-len(unranked))
	r.telemetry.ReceiverNcclcallProcessesSkipped.Add(ctx, int64(over+more))
	candidates := make(map[uint32]identity.Process, len(unranked))
	for _, p := range unranked {
		candidates[p.PID] = p
	}
	r.candidates.Store(&candidates)
	return watchedOf(slices.Concat(ranks, unranked))
}

func watchedOf(list []identity.Process) []ncclcall.Process {
	processes := make([]ncclcall.Process, len(list))
	for i, p := range list {
		processes[i] = ncclcall.Process{PID: p.PID, Start: p.StartTime, Owner: p.Domain}
	}
	return processes
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
