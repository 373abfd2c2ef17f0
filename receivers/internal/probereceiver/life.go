// Package probereceiver is the life of a receiver over a probe: it opens the probe,
// uses it, opens it again after it broke, and tells of all that in component status,
// metrics and log. A receiver brings its probe and what it does with it.
//
// A probe that does not open, or breaks, is a matter of error_mode. With propagate
// the collector does not start, or stops. With ignore the component's status is a
// recoverable error, the metric probe_up is 0, and the probe is opened again after a
// pause: one second at first, twice as long each time, five minutes at most. Where
// the kernel lacks every hook the pause is an hour, for a module may bring one.
// The status is OK again as soon as the probe is open.
//
// What the next consumer does never slows a probe down: see package outbox.
package probereceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Source is a probe, or a test's fake.
type Source interface {
	Stats() probe.Stats
	Report() probe.Report
	// Close ends what the probe does and lets its readers return
	// probe.ErrClosed. Closing twice is fine.
	Close() error
}

// Parts are what a receiver brings into its life.
type Parts[S Source] struct {
	Probe     string // its name in messages: "OOM-kill probe"
	Missing   string // what nobody learns without it: "OOM kills"
	ErrorMode record.ErrorMode
	Logger    *zap.Logger
	Metrics   Metrics
	Ticks     Ticks

	// Identity is the extension that knows processes. Where a receiver is of no use
	// without, NeedsIdentity makes its absence a matter of error_mode.
	Identity      *component.ID
	NeedsIdentity bool

	// Open opens the probe. Its result counts only without an error.
	Open func() (S, error)
	// Use reads the probe until it is closed or broken; the error says why it broke.
	Use func(context.Context, S) error
	// Prepare, if any, runs before the probe is opened for the first time, with what
	// knows processes, which may be nil.
	Prepare func(identity.Resolver)
	// Keep, if any, runs first: it finds what the receiver keeps its state in.
	Keep func(context.Context, component.Host) error
	// Work, if any, runs beside the probe, whether that is open or not. It ends when
	// done is closed, which is after the last Use returned.
	Work func(ctx context.Context, done <-chan struct{})
	// Lost, if any, tells of what nobody will learn. Calls come one after the other, beside those
	// of Use: a builder of records for it is used for nothing else.
	Lost func(*Lost)
	// GaveUp, if any, is how many records the receiver itself gave up so far: the next consumer was
	// too slow, or somebody had more than his share.
	GaveUp func() uint64
	// Shutdown ends the receiver's own telemetry.
	Shutdown func()
}

// Life is the life of one probe. Its receivers, one for each signal, share it.
type Life[S Source] struct {
	parts   Parts[S]
	metrics counters
	ctx     context.Context // ends when the receiver stops
	cancel  context.CancelFunc
	probe   sync.WaitGroup
	work    sync.WaitGroup
	done    chan struct{}

	begin, end sync.Once
	startErr   error
	said       string // the last error that was logged
	doubted    string // the last doubt that was

	mu     sync.Mutex // guards what follows
	open   bool
	source S // while open
	hosts  []component.Host
	status *componentstatus.Event // the last that was reported
}

// New makes the life of a probe.
func New[S Source](parts Parts[S]) *Life[S] {
	l := &Life[S]{parts: parts, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// start begins the life with the first signal; later calls return what the first
// did, and each signal has its status.
func (l *Life[S]) start(host component.Host) error {
	l.mu.Lock()
	l.hosts = append(l.hosts, host)
	known := l.status
	l.mu.Unlock()
	if known != nil {
		componentstatus.ReportStatus(host, known)
	}
	l.begin.Do(func() { l.startErr = l.first(host) })
	return l.startErr
}

func (l *Life[S]) first(host component.Host) error {
	resolver, err := record.Resolver(host, l.parts.Identity)
	if err != nil {
		return err
	}
	if l.parts.Keep != nil {
		if err := l.parts.Keep(l.ctx, host); err != nil {
			return err
		}
	}
	if l.parts.Prepare != nil {
		l.parts.Prepare(resolver)
	}
	if err := l.observe(); err != nil {
		return err
	}
	source, err := l.try(resolver)
	if err != nil && l.parts.ErrorMode == record.Propagate {
		return err
	}
	if l.parts.Lost != nil {
		l.work.Go(l.watchLosses)
	}
	if l.parts.Work != nil {
		l.work.Go(func() { l.parts.Work(l.ctx, l.done) })
	}
	switch {
	case errors.Is(err, errNobody): // until somebody changes the configuration
		l.tell(componentstatus.NewPermanentErrorEvent(err))
	default:
		if err != nil {
			l.failed(err)
		} else {
			l.doubt(source)
		}
		l.probe.Go(func() { l.run(source, err) })
	}
	return nil
}

var errNobody = errors.New("nobody to watch: set identity to the id of the identity extension, which knows the rank processes")

func (l *Life[S]) try(resolver identity.Resolver) (S, error) {
	if l.parts.NeedsIdentity && resolver == nil {
		var none S
		return none, fmt.Errorf("open the %s: %w", l.parts.Probe, errNobody)
	}
	return l.opened()
}

// opened opens the probe, unless the receiver stopped meanwhile.
func (l *Life[S]) opened() (S, error) {
	source, err := l.parts.Open()
	if err != nil {
		return source, fmt.Errorf("open the %s: %w", l.parts.Probe, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return source, errors.Join(l.ctx.Err(), source.Close())
	}
	l.source, l.open = source, true
	l.metrics.opened(source)
	l.wasAway(source.Report().Away)
	return source, nil
}

// run uses the probe, and opens it again, until the receiver stops.
func (l *Life[S]) run(source S, err error) {
	pause := firstPause
	for l.ctx.Err() == nil {
		if err != nil {
			if !l.wait(pauseAfter(err, pause)) {
				return
			}
			pause = min(2*pause, longestPause)
			if source, err = l.opened(); err == nil {
				l.recovered()
				l.doubt(source)
			} else if l.ctx.Err() == nil {
				l.failed(err)
			}
			continue
		}
		began := time.Now()
		err = l.use(source)
		switch {
		case l.ctx.Err() != nil:
		case l.parts.ErrorMode == record.Propagate:
			l.tell(componentstatus.NewFatalErrorEvent(err))
			return
		default:
			l.failed(err)
		}
		if time.Since(began) > longestPause {
			pause = firstPause // it worked for a while
		}
	}
}

// use returns why the probe does not work any more, and closes it.
func (l *Life[S]) use(source S) error {
	err := l.parts.Use(l.ctx, source)
	if err == nil || errors.Is(err, probe.ErrClosed) {
		err = errors.New("it ended by itself")
	}
	return errors.Join(fmt.Errorf("read the %s: %w", l.parts.Probe, err), l.closeSource())
}

func (l *Life[S]) closeSource() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil
	}
	l.open = false
	err := l.source.Close()
	l.metrics.closed()
	return err
}

// stop closes the probe and waits, no longer than ctx, for what is under way.
func (l *Life[S]) stop(ctx context.Context) error {
	var err error
	l.end.Do(func() {
		l.begin.Do(func() { l.startErr = errors.New("start after shutdown") })
		l.cancel()
		err = errors.Join(l.closeSource(), record.Wait(ctx, "the "+l.parts.Probe+" is still being read", func() {
			l.probe.Wait()
			close(l.done)
			l.work.Wait()
		}))
		l.parts.Shutdown()
	})
	return err
}
