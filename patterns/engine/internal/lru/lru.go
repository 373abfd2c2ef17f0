// Package lru orders what a cap bounds by when it was last touched.
package lru

import "container/list"

// List holds members, those touched longest ago first. The zero value is empty.
type List[T any] struct{ list list.List }

// Element is the place of one member.
type Element = *list.Element

// Len is how many members there are.
func (l *List[T]) Len() int { return l.list.Len() }

// Add enters v as the member touched last.
func (l *List[T]) Add(v T) Element { return l.list.PushBack(v) }

// Touch makes a member the one touched last.
func (l *List[T]) Touch(element Element) { l.list.MoveToBack(element) }

// Remove takes a member out.
func (l *List[T]) Remove(element Element) { l.list.Remove(element) }

// Oldest is the member touched longest ago; the list is not empty.
func (l *List[T]) Oldest() T { return l.list.Front().Value.(T) }

// Each visits the members, oldest first.
func (l *List[T]) Each(visit func(T)) {
	for element := l.list.Front(); element != nil; element = element.Next() {
		visit(element.Value.(T))
	}
}
