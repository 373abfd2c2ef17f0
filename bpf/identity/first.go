//go:build linux && (amd64 || arm64)

package identity

import "time"

// The first process of a container takes all others with it (zap_pid_ns_processes(),
// kernel/pid_namespace.c), and whether it failed tells what ended them. The kernel tells of its end with
// that of its last thread, but its first thread does the killing, and may be ahead of the last.

// firstEnding is how long the end of what was killed waits for that of the first process.
const firstEnding = time.Second

// maxBehind is how many ends wait.
const maxBehind = 1024

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
	var domain, container string
	if waits {
		domain, container = first.Domain, first.ContainerID
	}
	t.mu.RUnlock()
	if !waits {
		return false
	}
	held := *e
	held.environ = nil // it refers to the ring
	t.onExits(t.behind.add(held, bootNow()+uint64(t.firstEnding), domain, container))
	return true
}

// firstEnded handles the ends that have waited for that of this process.
func (t *Tracker) firstEnded(pid uint32, startNS uint64) {
	t.onExits(t.behind.those(func(e event) bool {
		s, _ := e.signals.ending(e.signal(), e.timeNS)
		return s.pid == pid && s.startNS == startNS
	}))
}

func (t *Tracker) onExits(ended []event) {
	for i := range ended {
		t.onExit(&ended[i])
	}
}
