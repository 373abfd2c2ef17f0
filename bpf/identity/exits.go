package identity

import (
	"slices"
	"sync"
	"sync/atomic"
)

// exitQueue is how many exits may wait for the callbacks: more than the ranks
// and workers of one node that die together.
const exitQueue = 4096

// exits tells the callbacks of exits, off the goroutine that reads events.
type exits struct {
	queue   chan Exit
	done    chan struct{}
	dropped atomic.Uint64

	mu        sync.Mutex // held while callbacks run: cancel waits for them
	callbacks []*func(Exit)
	early     []Exit // those from before the start, or before anybody asked, for callbacks that come later
	asked     bool   // somebody has
}

func newExits() *exits {
	return &exits{queue: make(chan Exit, exitQueue), done: make(chan struct{})}
}

func (x *exits) subscribe(fn func(Exit)) (cancel func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = true
	for _, e := range x.early {
		fn(e)
	}
	x.callbacks = append(x.callbacks, &fn)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.callbacks = slices.DeleteFunc(x.callbacks, func(f *func(Exit)) bool { return f == &fn })
	}
}

// send never blocks.
func (x *exits) send(e Exit) {
	select {
	case x.queue <- e:
	default:
		x.dropped.Add(1)
	}
}

func (x *exits) run() {
	defer close(x.done)
	for e := range x.queue {
		x.tell(e)
	}
}

func (x *exits) tell(e Exit) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if (e.Late || !x.asked) && len(x.early) < exitQueue {
		x.early = append(x.early, e)
	}
	for _, fn := range x.callbacks {
		(*fn)(e)
	}
}

// close delivers what waits and returns when that is done.
func (x *exits) close() {
	close(x.queue)
	<-x.done
}
