//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// hasEnded reports whether a process that began then is known to run no more.
func (t *Tracker) hasEnded(pid uint32, startNS uint64) bool {
	stat, err := t.proc.Stat(pid)
	if err != nil {
		return errors.Is(err, procfs.ErrGone)
	}
	return stat.Ended() || stat.StartNS() != startNS/uint64(tickNS)*uint64(tickNS)
}

// ended is the signal that explains the end of r, and who sent it; the zero value when
// none does. The caller holds the lock.
func (t *Tracker) ended(r *record, e *event) Signal {
	var which *sent
	itself := false
	if e.signals != nil {
		which, itself = e.signals.ending(e.signal(), e.timeNS)
	}
	if which == nil || itself { // who is asked to end may do so by a signal of its own
		if asked := r.before.ending(e.signal(), e.timeNS); which == nil || asked.Number != 0 {
			return asked
		}
	}
	by, of := t.first(r, which)
	signal := t.signalTo(by, of, itself)
	signal.Number, signal.Code = int(which.signal), int(which.code)
	return signal
}

// first is to whom a signal was sent first, and which one that was: a wrapper passes on what it was sent.
func (t *Tracker) first(r *record, s *sent) (*record, *sent) {
	for range maxAncestors {
		w := t.table.exact(s.pid, s.startNS)
		if w == nil || w == r || w.wraps == nil || w.RankPID != r.RankPID {
			break
		}
		asked := t.asksToEnd(w, s.timeNS)
		if asked == nil || asked.signal == 0 || asked.timeNS > s.timeNS {
			break
		}
		r, s = w, &asked.sent
	}
	return r, s
}

// Stopped returns the signal that stopped a process, unless it was continued since. What stopped it before this Tracker began is
// known where somebody has kept it.
func (t *Tracker) Stopped(p Process) (Signal, bool) {
	s := t.source.signalsTo(p.PID, p.StartNS)
	if s == nil || s.stopped.signal == 0 {
		return t.stoppedBefore(&p)
	}
	itself := s.stopped.pid == p.PID && s.stopped.flags&sentByKernel == 0
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.table.exact(p.PID, p.StartNS)
	if r == nil {
		return Signal{}, false
	}
	return t.signalTo(r, &s.stopped, itself), true
}

// signalTo names the sender of a signal to r. The caller holds the lock.
func (t *Tracker) signalTo(r *record, s *sent, itself bool) Signal {
	signal := Signal{Number: int(s.signal), Code: int(s.code), Time: wall(s.timeNS)}
	relation, sure := s.relate(itself)
	sender := t.table.exact(s.pid, s.startNS)
	if !sure {
		relation = t.relation(r, s, sender)
	}
	if relation == RelationContainer && s.flags&sentInExit != 0 && sender != nil && sender.failed {
		relation = RelationFirst
	}
	signal.Sender.Relation = relation
	if relation == RelationKernel {
		return signal
	}
	signal.Sender = Sender{
		Relation: relation, PID: s.pid, ParentPID: s.parentPID, UserID: s.userID, Comm: s.comm,
		StartNS: s.startNS - s.startNS%uint64(tickNS),
	}
	if sender != nil {
		signal.Sender.ContainerID = sender.ContainerID
	}
	return signal
}

// relation is how another process, nil when it is not known, stands to r.
func (t *Tracker) relation(r *record, s *sent, sender *record) Relation {
	root := s.userID == 0
	above := t.startedBy(r, s)
	switch {
	case above > 0:
		outside := sender != nil && sender.ContainerID == "" && s.flags&sentFromHost != 0
		if root && outside && s.flags&sentAcrossUsers != 0 {
			return RelationScheduler
		}
		if above > 1 {
			return RelationAncestor
		}
		return RelationLauncher
	case sender != nil && sender.IsRank() && sender.sameJob(&r.Process):
		return RelationRank
	case root && (s.flags&sentFromOutside != 0 || s.flags&sentFromHost != 0 && r.ContainerID != "" && sender != nil && sender.ContainerID == ""):
		return RelationHost
	default:
		return RelationOther
	}
}

// failedByItself reports whether a process ended with a failure that nobody else asked for.
func (e *Exit) failedByItself() bool {
	switch e.Signalled.Sender.Relation {
	case RelationItself, RelationKernel:
		return true
	case "":
		return e.OOMVictim || e.Failed()
	default:
		return e.OOMVictim
	}
}

// startedBy is how many generations the sender is above the outermost process of r's rank: 1 for what started
// it, or only wraps it, 0 where it is no ancestor.
func (t *Tracker) startedBy(r *record, s *sent) int {
	if outermost := t.table.at(r.RankPID, r.startNS); r.RankPID != 0 && outermost != nil && !r.Wrapped {
		r = outermost
	}
	for w := range t.wrappersOver(t.table.at(r.ParentPID, r.startNS)) {
		if w.PID == s.pid && w.startNS == s.startNS {
			return 1
		}
		r = w
	}
	return t.above(r, s.pid, s.startNS)
}

// above is how many generations that process is above r, 0 where it is no ancestor.
func (t *Tracker) above(r *record, pid uint32, startNS uint64) int {
	for n := range maxAncestors {
		parent := r.ParentPID
		if parent == pid && startNS <= r.startNS {
			return n + 1
		}
		if r = t.table.at(parent, r.startNS); parent == pid || r == nil {
			return 0
		}
	}
	return 0
}

// sameJob reports whether two processes are of one job.
func (p *Process) sameJob(o *Process) bool {
	return p.job() == o.job()
}
