package cudaoomreceiver

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// scan looks for the libraries of the ranks, now and at each tick, until the
// receiver stops. It is a goroutine of its own, since a process or a file system
// that hangs can hold it up.
func (o *cudaOOM) scan(ctx context.Context) {
	ticks, stop := o.ticks(o.config.ScanInterval)
	defer stop()
	said := ""
	for {
		watched, err := o.source.Watch(o.processes(ctx))
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
		case <-o.closing:
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

// observe makes the probe's own counters metrics of this receiver.
func (o *cudaOOM) observe() error {
	rung := ""
	stats := func() probe.Stats { return probe.Stats{} }
	if o.source != nil {
		rung, stats = o.source.Report().Rung, o.source.Stats
	}
	of := func(value func() int) metric.Int64Callback {
		return func(_ context.Context, observer metric.Int64Observer) error {
			observer.Observe(int64(value()))
			return nil
		}
	}
	up := func(_ context.Context, observer metric.Int64Observer) error {
		value := int64(0)
		if o.working.Load() {
			value = 1
		}
		observer.Observe(value, metric.WithAttributes(attribute.String("rung", rung)))
		return nil
	}
	t := o.telemetry
	return errors.Join(
		t.RegisterReceiverCudaoomProbeUpCallback(up),
		t.RegisterReceiverCudaoomProbeDroppedCallback(of(func() int { return int(stats().Dropped) })),
		t.RegisterReceiverCudaoomProbeInvalidCallback(of(func() int { return int(stats().Invalid) })),
		t.RegisterReceiverCudaoomLibrariesCallback(of(func() int { return o.watched.Load().Libraries })),
		t.RegisterReceiverCudaoomLibrariesFailedCallback(of(func() int { return o.watched.Load().Failed })),
		t.RegisterReceiverCudaoomLibrariesSkippedCallback(of(func() int { return o.watched.Load().Over })),
	)
}
