package cudaoomreceiver

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// scan looks for the libraries of the ranks, now and at each tick, until ctx ends or
// the probe is closed. It is a goroutine of its own, since a process or a file system
// that hangs can hold it up.
func (o *cudaOOM) scan(ctx context.Context, s source) {
	ticks, stop := o.ticks(o.config.ScanInterval)
	defer stop()
	said := ""
	for {
		watched, err := s.Watch(o.processes(ctx))
		if errors.Is(err, probe.ErrClosed) {
			return
		}
		o.watched.Store(&watched)
		o.telemetry.ReceiverCudaoomProcessesSkipped.Add(ctx, int64(watched.Unreadable))
		if err = errors.Join(watched.Err, err); err != nil && err.Error() != said {
			said = err.Error()
			o.settings.Logger.Warn("refusals of GPU memory to some processes go unseen", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// processes are those of the ranks, the lowest numbers first: the oldest.
func (o *cudaOOM) processes(ctx context.Context) []cudaoom.Process {
	ranks := o.resolver.Ranks()
	slices.SortFunc(ranks, func(a, b identity.Process) int { return int(int64(a.PID) - int64(b.PID)) })
	if over := len(ranks) - o.config.MaxProcesses; over > 0 {
		o.telemetry.ReceiverCudaoomProcessesSkipped.Add(ctx, int64(over))
		ranks = ranks[:o.config.MaxProcesses]
	}
	processes := make([]cudaoom.Process, len(ranks))
	for i, r := range ranks {
		processes[i] = cudaoom.Process{PID: r.PID, Start: r.StartTime}
	}
	return processes
}
