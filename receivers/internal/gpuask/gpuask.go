// Package gpuask tells, within one process, why the GPUs should be looked at: memory of one was
// refused just now, or a rank stands still. The receivers that see that tell it, and the gpu
// receiver hears it. Who held the memory is known only while the process that was refused still
// lives. What the GPU of a rank does is of interest only while the rank stands. These receivers are
// components of one collector that know nothing of each other, so the signal is one of the process.
package gpuask

import (
	"slices"
	"sync"
)

// Rank is the process of a rank that stands still, or does so no more.
type Rank struct {
	PID    uint32
	Stands bool
}

// maxRanks bounds the ranks that one listener has not heard of yet. Those beyond are not told. All
// that ncclcall watches (max_processes) may stop in one look.
const maxRanks = 4096

var (
	refusals = topic[struct{}]{room: 1} // who has not heard the last one yet hears one
	ranks    = topic[Rank]{room: maxRanks}
)

// Refused tells all who hear that GPU memory was refused. It never waits.
func Refused() { refusals.tell(struct{}{}) }

// Refusals returns a channel on which refusals are told from now on, until stop is called.
func Refusals() (told <-chan struct{}, stop func()) { return refusals.hear() }

// Stands tells all who hear that the process of a rank stands still, or does so no more. It never
// waits.
func Stands(pid uint32, stands bool) { ranks.tell(Rank{pid, stands}) }

// Ranks returns a channel on which ranks are told from now on, until stop is called.
func Ranks() (told <-chan Rank, stop func()) { return ranks.hear() }

// topic is one reason, with those who hear of it.
type topic[T any] struct {
	room int

	sync.Mutex
	listeners []chan T
}

func (t *topic[T]) tell(what T) {
	t.Lock()
	defer t.Unlock()
	for _, one := range t.listeners {
		select {
		case one <- what:
		default:
		}
	}
}

func (t *topic[T]) hear() (told <-chan T, stop func()) {
	one := make(chan T, t.room)
	t.Lock()
	defer t.Unlock()
	t.listeners = append(t.listeners, one)
	return one, func() {
		t.Lock()
		defer t.Unlock()
		t.listeners = slices.DeleteFunc(t.listeners, func(other chan T) bool { return other == one })
	}
}
