package cudaoomreceiver

import (
	"context"
	"errors"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
)

// scan looks for the libraries of the ranks until ctx ends or the probe is closed.
func (o *cudaOOM) scan(ctx context.Context, s source) {
	probereceiver.Search(ctx, o.ticks, o.config.ScanInterval, o.settings.Logger, "refusals of GPU memory to some processes go unseen", func() error {
		watched, err := s.Watch(o.processes(ctx))
		if errors.Is(err, probe.ErrClosed) {
			return err
		}
		o.watched.Store(&watched)
		o.telemetry.ReceiverCudaoomProcessesSkipped.Add(ctx, int64(watched.Unreadable))
		return errors.Join(watched.Err, err)
	})
}

// processes are those of the ranks, the lowest numbers first: the oldest.
func (o *cudaOOM) processes(ctx context.Context) []cudaoom.Process {
	ranks, over := probereceiver.Oldest(o.resolver, o.config.MaxProcesses)
	o.telemetry.ReceiverCudaoomProcessesSkipped.Add(ctx, int64(over))
	processes := make([]cudaoom.Process, len(ranks))
	for i, r := range ranks {
		processes[i] = cudaoom.Process{PID: r.PID, Start: r.StartTime, Owner: r.Domain}
	}
	return processes
}
