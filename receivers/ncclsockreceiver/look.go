package ncclsockreceiver

import (
	"context"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/silence"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// look takes one snapshot and tells what it comes to.
func (w *watcher) look(ctx context.Context, s source) error {
	began := time.Now()
	w.unranked.look(w.resolver, s, began) // before, so that the kernel goes on with the ranks as owners
	owners := w.owners(ctx)
	pids := make([]uint32, len(owners))
	for i := range owners {
		pids[i] = owners[i].PID
	}
	err := s.Snapshot(pids, &w.snapshot)
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	w.telemetry.ReceiverNcclsockSnapshots.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
	if err != nil {
		return err
	}
	w.over.Add(uint64(w.snapshot.Over))
	w.telemetry.ReceiverNcclsockProcessesSkipped.Add(ctx, int64(w.snapshot.Unreadable))
	round := w.round(owners)
	events := w.tracker.Observe(round)
	w.joined()
	silence.Tell(silence.Sockets, w.tracker.Silent())
	w.tell(events, w.tracker.Watched(), w.tracker.Left(), round.Processes)
	w.learned.Note(round.Time, w.resolver, w.tracker.Memory)
	counters := w.tracker.Counters()
	w.counters.Store(&counters)
	w.telemetry.ReceiverNcclsockSnapshotTime.Add(ctx, time.Since(began).Seconds())
	return nil
}

// owners are the processes of ranks to look at.
func (w *watcher) owners(ctx context.Context) []identity.Process {
	ranks, over := probereceiver.Oldest(w.resolver, int(w.config.MaxProcesses))
	w.telemetry.ReceiverNcclsockProcessesSkipped.Add(ctx, int64(over))
	return ranks
}

// round joins the snapshot with what the processes do that hold sockets.
// A rank without any may be one that is refused, and has a namespace at least.
func (w *watcher) round(owners []identity.Process) *stall.Round {
	holders := make(map[uint32]bool, len(owners))
	for i := range w.snapshot.Sockets {
		holders[w.snapshot.Sockets[i].PID] = true
	}
	r := &stall.Round{Time: w.snapshot.Time, Tick: w.snapshot.Tick, Sockets: w.snapshot.Sockets, Partial: w.snapshot.Over > 0, Processes: make(map[uint32]stall.Process, len(owners))}
	roots, kin := map[uint32]bool{}, activity.Kin(owners)
	for _, p := range owners {
		roots[p.PID] = !p.Inherited
	}
	isRoot := func(pid uint32) bool { return roots[pid] }
	w.proc.Begin()
	for _, p := range owners {
		if !holders[p.PID] && p.Inherited {
			r.Processes[p.PID] = activity.Unread(p)
			continue
		}
		does := w.proc.Read(p, w.tracker.Undecided(p.PID))
		if w.tracker.Wanted(p.PID) {
			w.proc.Inspect(&does, isRoot, kin[p.RankPID]...)
		}
		r.Processes[p.PID] = does
	}
	w.proc.Keep(func(pid uint32) bool { _, alive := r.Processes[pid]; return alive })
	return r
}

// joined tells the identity extension which processes take part in their jobs.
func (w *watcher) joined() {
	fresh := w.tracker.Joined()
	if members, ok := w.resolver.(identity.Members); ok {
		for _, p := range fresh {
			members.Joined(p)
		}
	}
}

// stoppers says of processes that are stopped, or whose child is, by which signal, where that is
// known.
func (w *watcher) stoppers(events []stall.Event) {
	for i := range events {
		if e := &events[i]; e.End == "" {
			does := activity.Process{Process: e.Process, State: e.Rank.State, Inside: e.Rank.Inside}
			e.Rank.Stopped = w.proc.Stopper(&does, w.resolver)
		}
	}
}

// tell leaves records of events, of what is watched and of who left, and now and then the metrics, in the
// outboxes.
func (w *watcher) tell(events []stall.Event, watched []stall.Watched, left []stall.Left, processes map[uint32]stall.Process) {
	now := time.Now()
	w.stoppers(events)
	if len(events)+len(watched)+len(left) > 0 && w.logs.Open() {
		if logs := w.convert.records(events, watched, left, w.snapshot.Time, now); logs != nil {
			w.logs.Put(*logs)
		}
	}
	if at := w.snapshot.Time; w.metrics.Open() && (at.Sub(w.reported) >= w.config.MetricsInterval || at.Before(w.reported)) {
		w.reported = at
		if metrics := w.convert.measures(w.tracker.Traffic, w.lines(), processes, now); metrics != nil {
			w.metrics.Put(*metrics)
		}
	}
}

// lines are those that ranks move their data over, with the interfaces that have them.
func (w *watcher) lines() (all []line) {
	w.interfaces.begin()
	w.tracker.Lines(func(of *stall.Process, local netip.Addr, moved stall.Line) {
		all = append(all, line{of, local, w.interfaces.of(of, local), moved})
	})
	return all
}
