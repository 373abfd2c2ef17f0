//go:build linux && (amd64 || arm64)

package identity

import "github.com/tracecoreai/tracecore/internal/fairlru"

// waiting are ends that wait until they are due, in order. Who ends many processes at once
// takes no room from others: where it is full, the owner of most gives way.
type waiting[T any] struct {
	ends fairlru.List[*waiter[T]]
	most int
}

type waiter[T any] struct {
	end   T
	due   uint64 // boot clock
	place *fairlru.Element[*waiter[T]]
}

// add lets an end wait. Where all places are taken, it returns the end that waits no longer: of
// the owner of most the oldest. The ends of one owner stay in order.
func (w *waiting[T]) add(end T, due uint64, owner ...string) (early []T) {
	if w.ends.Len() >= w.most {
		victim, _ := w.ends.Victim()
		w.ends.Remove(victim)
		early = []T{victim.Value.end}
	}
	one := &waiter[T]{end: end, due: due}
	one.place = w.ends.Add(one, fairlru.Some, owner...)
	return early
}

// due takes those that have waited long enough, the oldest first. One that has not holds up those behind it.
func (w *waiting[T]) due(now uint64) (ready []T) {
	for w.ends.Len() > 0 && w.ends.Oldest().due <= now {
		ready = append(ready, w.take(w.ends.Oldest()))
	}
	return ready
}

// all takes all, the oldest first.
func (w *waiting[T]) all() []T { return w.those(func(T) bool { return true }) }

// those takes some, the oldest first.
func (w *waiting[T]) those(match func(T) bool) (taken []T) {
	w.ends.Each(func(one *waiter[T]) {
		if match(one.end) {
			taken = append(taken, w.take(one))
		}
	})
	return taken
}

func (w *waiting[T]) take(one *waiter[T]) T {
	w.ends.Remove(one.place)
	return one.end
}
