package pyexceptionreceiver

import (
	"context"
	"errors"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
)

// scan looks for the interpreters of the ranks until ctx ends or the probe is closed.
func (x *exceptions) scan(ctx context.Context, s source) {
	probereceiver.Search(ctx, x.ticks, x.config.ScanInterval, x.settings.Logger, "exceptions of some processes go unseen", func() error {
		watched, err := s.Watch(x.processes(ctx))
		if errors.Is(err, probe.ErrClosed) {
			return err
		}
		x.watched.Store(&watched)
		x.telemetry.ReceiverPyexceptionProcessesSkipped.Add(ctx, int64(watched.Unreadable))
		return errors.Join(watched.Err, err)
	})
}

// processes are those of the ranks, the lowest numbers first: the oldest.
func (x *exceptions) processes(ctx context.Context) []pyexception.Process {
	ranks, over := probereceiver.Oldest(x.resolver, x.config.MaxProcesses)
	x.telemetry.ReceiverPyexceptionProcessesSkipped.Add(ctx, int64(over))
	x.quotes.saw(ranks, func(pid uint32) (identity.Process, bool) { return x.resolver.Lookup(pid, 0, time.Now()) })
	processes := make([]pyexception.Process, len(ranks))
	for i, r := range ranks {
		processes[i] = pyexception.Process{PID: r.PID, Start: r.StartTime, Owner: r.Domain}
	}
	return processes
}
