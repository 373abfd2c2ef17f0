package probereceiver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Libraries looks for the libraries of ranks, for a probe on functions in them.
type Libraries struct {
	Ranks    func(context.Context) []identity.Process // whose libraries are watched
	Ticks    Ticks
	Interval time.Duration
	Logger   *zap.Logger
	Unseen   string              // what of some processes goes unseen when a look fails
	Skipped  metric.Int64Counter // processes that could not be looked at

	watched atomic.Pointer[probe.Watched]
}

// Watcher is a probe on functions of libraries.
type Watcher[E any] interface {
	Watch([]probe.Process) (probe.Watched, error)
	Read(*E) error
}

// Observe makes what came out of the last look metrics: the libraries that are watched, those that
// failed and those beyond the limit.
func (l *Libraries) Observe(watched, failed, over Register) error {
	last := func(count func(*probe.Watched) int) func() int64 {
		return func() int64 {
			if w := l.watched.Load(); w != nil {
				return int64(count(w))
			}
			return 0
		}
	}
	return errors.Join(
		Observe(watched, last(func(w *probe.Watched) int { return w.Libraries })),
		Observe(failed, last(func(w *probe.Watched) int { return w.Failed })),
		Observe(over, last(func(w *probe.Watched) int { return w.Over })),
	)
}

// Watch has the libraries of ranks watched, and hands on what w delivers, until w is closed or broken.
func Watch[E any](ctx context.Context, l *Libraries, w Watcher[E], handle func(*E)) error {
	ctx, stop := context.WithCancel(ctx)
	var search sync.WaitGroup
	search.Go(func() {
		Search(ctx, l.Ticks, l.Interval, l.Logger, l.Unseen, func() error {
			watched, err := w.Watch(Watched(l.Ranks(ctx)))
			if errors.Is(err, probe.ErrClosed) {
				return err
			}
			l.watched.Store(&watched)
			l.Skipped.Add(ctx, int64(watched.Unreadable))
			return errors.Join(watched.Err, err)
		})
	})
	err := Events(w.Read, handle)
	stop()
	search.Wait()
	l.watched.Store(nil)
	return err
}

// Watched are processes as a probe on libraries takes them.
func Watched(processes []identity.Process) []probe.Process {
	all := make([]probe.Process, len(processes))
	for i, p := range processes {
		all[i] = probe.Process{PID: p.PID, Start: p.StartTime, Owner: p.Domain}
	}
	return all
}
