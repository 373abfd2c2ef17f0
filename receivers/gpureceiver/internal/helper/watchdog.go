package helper

import (
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// watchdog knows which calls are under way and reports one that takes too long.
type watchdog struct {
	limit  time.Duration
	report func(protocol.Hung)
	done   chan struct{}

	mu    sync.Mutex // guards lanes and what is in them
	lanes []*lane
}

// lane is a goroutine that makes one call at a time.
type lane struct {
	of        *watchdog
	call, gpu string
	since     time.Time // zero: no call
	allowed   time.Duration
}

func newWatchdog(limit time.Duration, report func(protocol.Hung)) *watchdog {
	w := &watchdog{limit: limit, report: report, done: make(chan struct{})}
	go w.run()
	return w
}

func (w *watchdog) stop() { close(w.done) }

func (w *watchdog) lane() *lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &lane{of: w}
	w.lanes = append(w.lanes, l)
	return l
}

// Begin notes a call.
func (l *lane) Begin(call, gpu string) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.call, l.gpu, l.since, l.allowed = call, gpu, time.Now(), l.of.limit
	if call == EventWait { // is meant to last
		l.allowed += eventWait
	}
}

// End notes its return.
func (l *lane) End() {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.since = time.Time{}
}

func (w *watchdog) run() {
	ticks := time.NewTicker(max(w.limit/10, time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-w.done:
			return
		case now := <-ticks.C:
			if hung, any := w.look(now); any {
				w.report(hung)
				return
			}
		}
	}
}

// look finds the call that has hung for longest.
func (w *watchdog) look(now time.Time) (protocol.Hung, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var hung protocol.Hung
	for _, l := range w.lanes {
		lasted := now.Sub(l.since)
		if !l.since.IsZero() && lasted > l.allowed && lasted.Seconds() > hung.Seconds {
			hung = protocol.Hung{Call: l.call, GPU: l.gpu, Seconds: lasted.Seconds()}
		}
	}
	return hung, hung.Call != ""
}
