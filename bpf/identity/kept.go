//go:build linux && (amd64 || arm64)

package identity

import "github.com/tracecoreai/tracecore/internal/procfs"

// The kernel side of a Tracker notes signals, and is gone with it. What it knew of a rank that lives is kept elsewhere, and the
// next Tracker is told. An older one never stands for a newer: who was continued since, or stopped again, has run.

var _ Keeps = (*Tracker)(nil)

// Sent implements Keeps.
func (t *Tracker) Sent(p Process) (s Sent, is bool) {
	s.Stopped, s.Switches = t.stop(&p)
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, now := t.table.exact(p.PID, p.StartNS), bootNow()
	if r == nil || !r.alive() {
		return Sent{}, false
	}
	if asked := t.asksToEnd(r, now); asked != nil {
		s.Asked = t.signalTo(r, &asked.sent, false)
	} else if r.before.asked(now) {
		s.Asked = r.before.Asked
	}
	return s, s.Stopped.Number != 0 || s.Asked.Number != 0
}

// stop is what holds a process, and its switches there. They are read first: who has run meanwhile has others at the next start.
func (t *Tracker) stop(p *Process) (by Signal, switches uint64) {
	noted := t.source.signalsTo(p.PID, p.StartNS)
	if _, before := t.stoppedBefore(p); !before && (noted == nil || noted.stopped.signal == 0) {
		return Signal{}, 0
	}
	status, err := t.proc.Status(p.PID)
	if err != nil || !stopped(&status) {
		return Signal{}, 0
	}
	if by, is := t.Stopped(*p); is {
		return by, status.Switches
	}
	return Signal{}, 0
}

// WasSent implements Keeps.
func (t *Tracker) WasSent(p Process, s Sent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.table.exact(p.PID, p.StartNS); r != nil && r.alive() {
		r.before = &s
	}
}

// stoppedBefore is what stopped a process before this Tracker began, where it has not run since.
func (t *Tracker) stoppedBefore(p *Process) (Signal, bool) {
	t.mu.RLock()
	r := t.table.exact(p.PID, p.StartNS)
	var before *Sent
	if r != nil && r.alive() {
		before = r.before
	}
	t.mu.RUnlock()
	if before == nil || before.Stopped.Number == 0 {
		return Signal{}, false
	}
	status, err := t.proc.Status(p.PID)
	if err != nil || !stopped(&status) || status.Switches != before.Switches {
		return Signal{}, false
	}
	return before.Stopped, true
}

// stopped reports whether a signal holds a thread. A debugger does so in another state.
func stopped(s *procfs.ThreadStatus) bool { return s.State == 'T' }

// asked reports whether somebody had asked it to end, not long before a time.
func (s *Sent) asked(at uint64) bool {
	return s != nil && s.Asked.Number != 0 && bootOf(s.Asked.Time)+uint64(stopping) >= at
}

// ending is the signal that explains an end, of those that were sent before this Tracker began: as ending of signals.
func (s *Sent) ending(signal int, endNS uint64) Signal {
	if s == nil || s.Asked.Number == 0 {
		return Signal{}
	}
	if signal != 0 && s.Asked.Number == signal || (s.Asked.Number == sigTERM || s.Asked.Number == sigINT) && s.asked(endNS) {
		return s.Asked
	}
	return Signal{}
}
