// Package shared lets the instances that the service makes of one component, one for
// each signal or pipeline, have one thing between them.
package shared

import (
	"sync"

	"go.opentelemetry.io/collector/component"
)

// ByID has what components share, each from the first Join to the last Leave. The
// zero value is ready; all methods may be called at the same time.
type ByID[T any] struct {
	mu      sync.Mutex
	entries map[component.ID]*entry[T]
}

type entry[T any] struct {
	value   T
	holders int
}

// Share is what one instance has of it.
type Share[T any] struct {
	Value T

	once  sync.Once
	leave func(last func() error) error
}

// Join returns what a component shares. The first to join creates it; an error of
// create is returned as it is, and nothing is kept.
func (b *ByID[T]) Join(id component.ID, create func() (T, error)) (*Share[T], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e == nil {
		value, err := create()
		if err != nil {
			return nil, err
		}
		e = &entry[T]{value: value}
		if b.entries == nil {
			b.entries = make(map[component.ID]*entry[T])
		}
		b.entries[id] = e
	}
	e.holders++
	return &Share[T]{Value: e.value, leave: func(last func() error) error { return b.leave(id, e, last) }}, nil
}

func (b *ByID[T]) leave(id component.ID, e *entry[T], last func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.holders--; e.holders > 0 {
		return nil
	}
	delete(b.entries, id)
	if last == nil {
		return nil
	}
	return last()
}

// Leave gives a share back; the second call does nothing. The last to leave runs last,
// which may be nil, before anybody can join anew, and returns its error.
func (s *Share[T]) Leave(last func() error) error {
	var err error
	s.once.Do(func() { err = s.leave(last) })
	return err
}
