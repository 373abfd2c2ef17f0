//go:build linux && (amd64 || arm64)

package identity

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
)

// Lookup returns the process that had this pid at that moment; a zero time means
// now. When it is not known and still lives, it is read from /proc. Failing
// that, the answer is what the parent is, with Inherited set, if the parent
// belongs to a rank or a container; parentPID 0 means that it is not known.
func (t *Tracker) Lookup(pid, parentPID uint32, at time.Time) (Process, bool) {
	if pid == 0 {
		return Process{}, false
	}
	ns := bootOf(at)
	if p, ok := t.known(pid, ns); ok {
		return p, true
	}
	return t.inherited(pid, parentPID, ns)
}

// Ranks returns the living processes of ranks and their known descendants, in no
// order.
func (t *Tracker) Ranks() []Process {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.table.livingRanks()
}

// EndedUnseen implements Endings.
func (t *Tracker) EndedUnseen(p Born) bool {
	if p.StartNS == 0 || !t.hasEnded(p.PID, p.StartNS) {
		return false
	}
	t.catchUp(bootNow())
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.table.exact(p.PID, p.StartNS)
	return r == nil || !r.told || r.Inherited // its wrapper was not known as one by then
}

// known finds the process itself. One that had ended by then is still meant (its
// GPU's faults may come after it), unless somebody else has the pid now.
func (t *Tracker) known(pid uint32, ns uint64) (Process, bool) {
	r, p, sure := t.recorded(pid, ns)
	if !sure {
		t.catchUp(ns)
		r, p, sure = t.recorded(pid, ns)
	}
	if sure {
		return p, true
	}
	now := t.learn(pid, maxAncestors, false)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if now != nil && now.startNS <= ns+uint64(startSlack) {
		return now.Process, true
	}
	return p, r != nil
}

// recorded finds the last process of that pid in the table; sure is false when
// there is none, or none any more.
func (t *Tracker) recorded(pid uint32, ns uint64) (r *record, p Process, sure bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if r = t.table.at(pid, ns); r == nil {
		return nil, Process{}, false
	}
	p, sure = r.Process, r.alive() || r.endNS >= ns
	p.Ended = !sure
	return r, p, sure
}

// inherited answers for a process that nobody has seen.
func (t *Tracker) inherited(pid, parentPID uint32, ns uint64) (Process, bool) {
	parent := t.parent(parentPID, ns, maxAncestors)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if parent == nil || !parent.IsRank() && parent.ContainerID == "" {
		return Process{}, false
	}
	r, _ := derive(facts{pid: pid, parentPID: parentPID, launch: noLaunch()}, parent)
	r.Inherited = true
	return r.Process, true
}

// bootOf turns a wall-clock time into the boot clock's. Both the time of an event
// and this use the offset of about now, so that a step of the wall clock since
// the process started does no harm.
func bootOf(at time.Time) uint64 {
	if at.IsZero() {
		return bootNow()
	}
	offset, err := bootclock.Offset()
	if err != nil {
		return 0
	}
	return uint64(max(0, at.UnixNano()-offset))
}
