package gate

import (
	"context"
	"slices"
	"sync"
)

// turns shares so many places between owners. Those of one owner wait in order, and owners
// take turns. Where too many wait, the one that came last gives way, of the owner for whom most
// wait.
type turns struct {
	most int // that wait

	mu       sync.Mutex // guards all below
	free     int        // places
	waits    int
	queues   map[string][]chan bool
	rotation []string // owners of queues, the next one first
}

func newTurns(places, most int) *turns {
	return &turns{free: places, most: most, queues: map[string][]chan bool{}}
}

// wait reports whether its caller has a place. It gives it back with leave.
func (t *turns) wait(ctx context.Context, owner string) bool {
	turn := t.enter(owner)
	select {
	case has := <-turn:
		return has
	case <-ctx.Done():
	}
	if t.remove(owner, turn) {
		return false
	}
	return <-turn // it was called in the same moment
}

// enter returns where it is said whether there is a place.
func (t *turns) enter(owner string) chan bool {
	turn := make(chan bool, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		turn <- true
		return turn
	}
	t.push(owner, turn)
	if t.waits > t.most {
		largest := owner // where others have as many, the last that came
		for name, queue := range t.queues {
			if len(queue) > len(t.queues[largest]) {
				largest = name
			}
		}
		t.take(largest, len(t.queues[largest])-1) <- false
	}
	return turn
}

func (t *turns) push(owner string, turn chan bool) {
	if t.queues[owner] == nil {
		t.rotation = append(t.rotation, owner)
	}
	t.queues[owner] = append(t.queues[owner], turn)
	t.waits++
}

// take takes one out of the queue of an owner.
func (t *turns) take(owner string, at int) chan bool {
	turn := t.queues[owner][at]
	t.queues[owner] = slices.Delete(t.queues[owner], at, at+1)
	t.waits--
	if len(t.queues[owner]) == 0 {
		delete(t.queues, owner)
		t.rotation = slices.DeleteFunc(t.rotation, func(one string) bool { return one == owner })
	}
	return turn
}

// remove takes out who waits no more. It reports whether it was there.
func (t *turns) remove(owner string, turn chan bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.queues[owner], turn)
	if at >= 0 {
		t.take(owner, at)
	}
	return at >= 0
}

// leave gives a place to who waits first, of the owner whose turn it is.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == 0 {
		t.free++
		return
	}
	owner := t.rotation[0]
	t.rotation = append(t.rotation[1:], owner)
	t.take(owner, 0) <- true
}
