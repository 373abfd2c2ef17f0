package engine

import "container/list"

// lru orders members by when they were last touched, oldest first.
type lru[T any] struct{ list list.List }

func (l *lru[T]) len() int                     { return l.list.Len() }
func (l *lru[T]) add(v T) *list.Element        { return l.list.PushBack(v) }
func (l *lru[T]) touch(element *list.Element)  { l.list.MoveToBack(element) }
func (l *lru[T]) remove(element *list.Element) { l.list.Remove(element) }
func (l *lru[T]) oldest() T                    { return l.list.Front().Value.(T) }

// each visits the members, oldest first.
func (l *lru[T]) each(visit func(T)) {
	for element := l.list.Front(); element != nil; element = element.Next() {
		visit(element.Value.(T))
	}
}
