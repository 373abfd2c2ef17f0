package ncclsockreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// maxFailures is how many snapshots in a row may fail until the probe counts as
// broken.
const maxFailures = 10

// look takes one snapshot and leaves what it comes to in the outbox.
func (w *watcher) look(ctx context.Context, host component.Host) {
	began := time.Now()
	owners := w.owners(ctx)
	pids := make([]uint32, len(owners))
	for i := range owners {
		pids[i] = owners[i].PID
	}
	err := w.source.Snapshot(pids, &w.snapshot)
	if errors.Is(err, probe.ErrClosed) {
		return
	}
	w.judge(ctx, host, err)
	if err != nil {
		return
	}
	w.over.Add(uint64(w.snapshot.Over))
	w.telemetry.ReceiverNcclsockProcessesSkipped.Add(ctx, int64(w.snapshot.Unreadable))
	w.tell(w.tracker.Observe(w.round(owners)))
	counters := w.tracker.Counters()
	w.counters.Store(&counters)
	w.telemetry.ReceiverNcclsockSnapshotTime.Add(ctx, time.Since(began).Seconds())
}

// owners are the processes of ranks to look at: first those that a launcher
// started, which are most likely to hold the sockets of their job.
func (w *watcher) owners(ctx context.Context) []identity.Process {
	ranks := w.resolver.Ranks()
	most := int(w.config.MaxProcesses)
	if len(ranks) <= most {
		return ranks
	}
	slices.SortFunc(ranks, func(a, b identity.Process) int {
		if a.Inherited != b.Inherited {
			if b.Inherited {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.PID, b.PID)
	})
	w.telemetry.ReceiverNcclsockProcessesSkipped.Add(ctx, int64(len(ranks)-most))
	return ranks[:most]
}

// round joins the snapshot with what the processes do that hold sockets.
// A rank without any may be one that is refused, and has a namespace at least.
func (w *watcher) round(owners []identity.Process) *stall.Round {
	holders := make(map[uint32]bool, len(owners))
	for i := range w.snapshot.Sockets {
		holders[w.snapshot.Sockets[i].PID] = true
	}
	r := &stall.Round{Time: w.snapshot.Time, Sockets: w.snapshot.Sockets, Processes: make(map[uint32]stall.Process, len(owners))}
	for _, p := range owners {
		if holders[p.PID] || !p.Inherited {
			r.Processes[p.PID] = w.proc.Read(p, w.tracker.Undecided(p.PID))
		} else {
			r.Processes[p.PID] = procfs.Unread(p)
		}
	}
	w.proc.Keep(func(pid uint32) bool { _, alive := r.Processes[pid]; return alive })
	return r
}

// tell leaves records of events, and now and then the metrics, in the outbox.
func (w *watcher) tell(events []stall.Event) {
	var b batch
	now := time.Now()
	if w.out.logs != nil && len(events) > 0 {
		b.logs = w.convert.stalls(events, now)
	}
	if at := w.snapshot.Time; w.out.metrics != nil && (at.Sub(w.reported) >= w.config.MetricsInterval || at.Before(w.reported)) {
		w.reported = at
		b.metrics = w.convert.traffic(w.tracker.Traffic, now)
	}
	if b.logs != nil || b.metrics != nil {
		w.out.put(b)
	}
}

// judge counts a snapshot and reports a probe that stops or starts to work.
func (w *watcher) judge(ctx context.Context, host component.Host, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
		w.failures++
	}
	w.telemetry.ReceiverNcclsockSnapshots.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
	switch {
	case err == nil && w.failures >= maxFailures:
		w.working.Store(true)
		componentstatus.ReportStatus(host, componentstatus.NewEvent(componentstatus.StatusOK))
		fallthrough
	case err == nil:
		w.failures = 0
	case w.failures == maxFailures:
		w.fail(host, fmt.Errorf("read sockets %d times in a row: %w", maxFailures, err))
	}
}

// fail reports a probe that stopped working. It is asked on: what is refused now
// (memory, a limit of files) may be given later.
func (w *watcher) fail(host component.Host, err error) {
	w.working.Store(false)
	w.config.ErrorMode.Stopped(host, w.settings.Logger, missing, componentstatus.NewRecoverableErrorEvent(err))
}

// observe makes the counters of probe and tracker metrics of this receiver.
func (w *watcher) observe() error {
	rung := ""
	stats := func() probe.Stats { return probe.Stats{} }
	if w.source != nil {
		rung, stats = w.source.Report().Rung, w.source.Stats
	}
	up := func() int64 {
		if w.working.Load() {
			return 1
		}
		return 0
	}
	telling := func(value func() int64, options ...metric.ObserveOption) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(value(), options...)
			return nil
		}
	}
	count := func(value func(*stall.Counters) int64) metric.Int64Callback {
		return telling(func() int64 { return value(w.counters.Load()) })
	}
	t := w.telemetry
	return errors.Join(
		t.RegisterReceiverNcclsockProbeUpCallback(telling(up, metric.WithAttributes(attribute.String("rung", rung)))),
		t.RegisterReceiverNcclsockProbeDroppedCallback(telling(func() int64 { return int64(stats().Dropped) })),
		t.RegisterReceiverNcclsockProbeInvalidCallback(telling(func() int64 { return int64(stats().Invalid) })),
		t.RegisterReceiverNcclsockRanksCallback(count(func(c *stall.Counters) int64 { return int64(c.Ranks) })),
		t.RegisterReceiverNcclsockSocketsCallback(count(func(c *stall.Counters) int64 { return int64(c.Sockets) })),
		t.RegisterReceiverNcclsockStallsCallback(count(func(c *stall.Counters) int64 { return int64(c.Open) })),
		t.RegisterReceiverNcclsockStallsDroppedCallback(count(func(c *stall.Counters) int64 { return int64(c.StallsDropped) })),
		t.RegisterReceiverNcclsockPeersFoldedCallback(count(func(c *stall.Counters) int64 { return int64(c.PeersFolded) })),
		t.RegisterReceiverNcclsockSocketsSkippedCallback(count(func(c *stall.Counters) int64 { return int64(c.SocketsSkipped + w.over.Load()) })),
		t.RegisterReceiverNcclsockChangesDroppedCallback(count(func(c *stall.Counters) int64 { return int64(c.ChangesDropped + w.lost.Load()) })),
	)
}
