package otlpreceiver

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// turns lets as many large messages be scanned and decoded at once as leave a processor
// to what reads the kernel: a goroutine that waits for one gets it after up to 10 ms for
// each that computes (forcePreemptNS of Go's scheduler, runtime/proc.go). Senders take turns:
// a message of one that sends without end waits for a message of each other that waits.
type turns struct {
	most int // at once

	mu    sync.Mutex // guards what follows
	taken int
	next  []origin                   // senders of which messages wait, each once
	lines map[origin][]chan struct{} // those messages, in their order; closed when it is one's turn
}

// large is the size of a message that waits for its turn. A smaller one takes less than
// such a slice.
const large = 64 << 10

func newTurns() *turns {
	return &turns{most: max(1, runtime.GOMAXPROCS(0)-1), lines: map[origin][]chan struct{}{}}
}

// enter waits for the turn of a message. The caller leaves when it is decoded; leaving
// twice is fine. The error is that of ctx.
func (t *turns) enter(ctx context.Context, from origin, bytes int) (leave func(), err error) {
	if bytes < large {
		return func() {}, nil
	}
	turn := t.line(from)
	select {
	case <-turn:
		return sync.OnceFunc(t.pass), nil
	case <-ctx.Done():
		t.giveUp(from, turn)
		return nil, ctx.Err()
	}
}

// line is closed when it is the turn of a message that comes now. Who finds a turn free has it.
func (t *turns) line(from origin) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := make(chan struct{})
	if t.taken < t.most {
		t.taken++
		close(turn)
		return turn
	}
	if len(t.lines[from]) == 0 {
		t.next = append(t.next, from)
	}
	t.lines[from] = append(t.lines[from], turn)
	return turn
}

// pass gives a turn to the sender that has waited longest since his last one.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.next) == 0 {
		t.taken--
		return
	}
	from := t.next[0]
	t.next = append(t.next[1:], from)
	close(t.lines[from][0])
	t.remove(from, 0)
}

// giveUp takes a message out of its line, or passes on the turn that it got meanwhile.
func (t *turns) giveUp(from origin, turn chan struct{}) {
	t.mu.Lock()
	i := slices.Index(t.lines[from], turn)
	if i >= 0 {
		t.remove(from, i)
	}
	t.mu.Unlock()
	if i < 0 {
		t.pass()
	}
}

// remove is called with mu held.
func (t *turns) remove(from origin, i int) {
	if t.lines[from] = slices.Delete(t.lines[from], i, i+1); len(t.lines[from]) == 0 {
		delete(t.lines, from)
		t.next = slices.DeleteFunc(t.next, func(o origin) bool { return o == from })
	}
}
