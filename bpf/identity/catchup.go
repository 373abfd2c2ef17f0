//go:build linux && (amd64 || arm64)

package identity

import (
	"errors"
	"time"
)

// catchUps is how many times a second a Lookup may have the ring read at once: a
// flood of questions about processes that never were must not cost more.
const catchUps = 100

// catchUp waits until the events from before a moment are handled: the ring is
// read ten times a second, and who asks about a process may be faster.
func (t *Tracker) catchUp(ns uint64) {
	now := bootNow()
	if ns < t.drained.Load() {
		return
	}
	done := t.wait(now)
	if done == nil {
		return
	}
	if !t.source.flush() {
		t.forgetWaiting()
		return
	}
	timer := time.NewTimer(catchingUp)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-t.closing:
	}
}

// wait enters somebody who waits, or returns nil when this second had enough of them.
func (t *Tracker) wait(now uint64) chan struct{} {
	t.waiting.Lock()
	defer t.waiting.Unlock()
	if now-t.waiting.second >= uint64(time.Second) {
		t.waiting.second, t.waiting.count = now, 0
	}
	if t.waiting.count++; t.waiting.count > catchUps {
		return nil
	}
	done := make(chan struct{})
	t.waiting.readers = append(t.waiting.readers, done)
	return done
}

// forgetWaiting is for a source that is closed or never has events.
func (t *Tracker) forgetWaiting() {
	t.waiting.Lock()
	defer t.waiting.Unlock()
	t.waiting.readers = nil
}

// answer handles all events there are, for those who were waiting before it began.
func (t *Tracker) answer() {
	for again := true; again; {
		t.waiting.Lock()
		readers := t.waiting.readers
		t.waiting.readers = nil
		t.waiting.Unlock()
		began := bootNow()
		err := t.handleUntil(time.Now())
		if !errors.Is(err, errMore) {
			t.drained.Store(began)
		}
		for _, done := range readers {
			close(done)
		}
		again = errors.Is(err, errFlushed) // somebody else asked meanwhile
	}
}
