//go:build linux && (amd64 || arm64)

package identity

import "time"

// The first process of a container takes all others with it (zap_pid_ns_processes(),
// kernel/pid_namespace.c), and whether it failed tells what ended them. The kernel tells of its end with
// that of its last thread, but its first thread does the killing, and may be ahead of the last.

// firstEnding is how long the end of what was killed waits for that of the first process.
const firstEnding = time.Second

// maxBehind is how many ends wait; beyond it the oldest does not.
const maxBehind = 1024

// heldEnd is an end that waits for that of the first process of its container.
type heldEnd struct {
	event
	due uint64 // boot clock
}

// waitsForFirst lets the end of a process wait, where its first process has killed it and has not ended yet
// as far as is known.
func (t *Tracker) waitsForFirst(e *event) bool {
	if e.signals == nil {
		return false
	}
	s, _ := e.signals.ending(e.signal(), e.timeNS)
	if s == nil || !s.byEndOfFirst() {
		return false
	}
	t.mu.RLock()
	first := t.table.exact(s.pid, s.startNS)
	waits := first != nil && first.alive()
	t.mu.RUnlock()
	if !waits {
		return false
	}
	if len(t.behind) >= maxBehind {
		t.handleBehind(1)
	}
	held := *e
	held.environ = nil // it refers to the ring
	t.behind = append(t.behind, heldEnd{held, bootNow() + uint64(t.firstEnding)})
	return true
}

// firstEnded handles the ends that have waited for that of this process.
func (t *Tracker) firstEnded(pid uint32, startNS uint64) {
	var ready []heldEnd
	stay := t.behind[:0]
	for _, one := range t.behind {
		if s, _ := one.signals.ending(one.signal(), one.timeNS); s.pid == pid && s.startNS == startNS {
			ready = append(ready, one)
		} else {
			stay = append(stay, one)
		}
	}
	t.behind = stay
	for i := range ready {
		t.onExit(&ready[i].event)
	}
}

// firstOverdue handles the ends that have waited long enough: the end of their first process was lost.
func (t *Tracker) firstOverdue(now uint64) {
	n := 0
	for n < len(t.behind) && t.behind[n].due <= now {
		n++
	}
	t.handleBehind(n)
}

// handleBehind handles the oldest ends that wait.
func (t *Tracker) handleBehind(n int) {
	ready := t.behind[:n:n]
	t.behind = t.behind[n:]
	for i := range ready {
		t.onExit(&ready[i].event)
	}
}
