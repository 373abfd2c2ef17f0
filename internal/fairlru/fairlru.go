// Package fairlru orders what a cap bounds by when it was last touched, and shares the
// cap between owners: where room is needed, it is taken from the owner that holds most.
//
// An owner is a path, for example node, pattern, job: first the node that holds most
// gives way, then its pattern that holds most, and so on. So an owner that makes up new
// names below its own takes no room from others. Members of equal owners leave in the
// order in which they were last touched, those that matter less first. A favored first
// name may hold several times as much as another before it gives way.
package fairlru

import "container/heap"

// Worth is how much a member matters; the zero value matters least.
type Worth uint8

// The worths of members. Among owners that hold equally many, the one with the least
// worthy member gives way; within an owner, that member.
const (
	Little Worth = iota
	Some
	Much
	worths
)

// List holds members. The zero value is empty. All paths of a list have as many names.
type List[T any] struct {
	root   owner[T]
	owners map[ownerKey[T]]*owner[T]
	favor  map[string]int
	order  chain[T] // all members, those touched longest ago first
	count  int
	clock  uint64
}

// Element is the place of one member.
type Element[T any] struct {
	Value T

	owner   *owner[T]
	worth   Worth
	size    int
	touched uint64
	inOrder links[T]
	inOwner links[T]
}

type ownerKey[T any] struct {
	parent *owner[T]
	name   string
}

// owner holds members, or owners below it.
type owner[T any] struct {
	ownerKey[T]
	held   int // sizes of members, also those of owners below
	favor  int // how many times as much as another it may hold
	at     int // in the heap of the parent
	below  owners[T]
	own    [worths]chain[T] // by worth, those touched longest ago first
	victim *Element[T]      // whom this owner gives away first
}

// Len is how many members there are.
func (l *List[T]) Len() int { return l.count }

// Size is the sum of the sizes of all members.
func (l *List[T]) Size() int { return l.root.held }

// Favor lets owners of that first name hold so many times as much as others. It is called
// before the first Add.
func (l *List[T]) Favor(name string, times int) {
	if l.favor == nil {
		l.favor = map[string]int{}
	}
	l.favor[name] = times
}

// Resize says how much room a member takes, 1 or more: a large one counts as several
// when room is shared.
func (l *List[T]) Resize(e *Element[T], size int) {
	if more := size - e.size; more != 0 && e.owner != nil {
		e.size = size
		e.owner.settle(e, more)
	}
}

// Add enters v as the member touched last, of size 1.
func (l *List[T]) Add(v T, worth Worth, path ...string) *Element[T] {
	l.clock++
	e := &Element[T]{Value: v, owner: l.owner(path), worth: worth, size: 1, touched: l.clock}
	l.count++
	e.inOrder.of, e.inOwner.of = e, e
	l.order.push(&e.inOrder)
	e.owner.own[worth].push(&e.inOwner)
	e.owner.settle(e, 1)
	return e
}

// Touch makes a member the one touched last, and worth that much.
func (l *List[T]) Touch(e *Element[T], worth Worth) {
	l.clock++
	e.touched = l.clock
	l.order.remove(&e.inOrder)
	l.order.push(&e.inOrder)
	e.owner.own[e.worth].remove(&e.inOwner)
	e.worth = worth
	e.owner.own[worth].push(&e.inOwner)
	e.owner.settle(e, 0)
}

// Remove takes a member out. One that is out already stays out.
func (l *List[T]) Remove(e *Element[T]) {
	o := e.owner
	if o == nil {
		return
	}
	e.owner = nil
	l.order.remove(&e.inOrder)
	o.own[e.worth].remove(&e.inOwner)
	l.count--
	o.settle(e, -e.size)
	for ; o.held == 0 && o.parent != nil; o = o.parent {
		heap.Remove(&o.parent.below, o.at)
		delete(l.owners, o.ownerKey)
	}
}

// Victim is the member that leaves first where room is needed; the list is not empty.
// Depth is the place in its path of the name that was chosen among others, as many as
// its names where there were no others.
func (l *List[T]) Victim() (e *Element[T], depth int) {
	for o := &l.root; len(o.below) == 1; o = o.below[0] {
		depth++
	}
	return l.root.victim, depth
}

// Oldest is the member touched longest ago; the list is not empty.
func (l *List[T]) Oldest() T { return l.order.first.of.Value }

// Each visits the members, those touched longest ago first. The visit may remove the
// member it is shown.
func (l *List[T]) Each(visit func(T)) {
	for at := l.order.first; at != nil; at = at.next {
		visit(at.of.Value)
	}
}

// owner finds or makes the owner of that path.
func (l *List[T]) owner(path []string) *owner[T] {
	if l.owners == nil {
		l.owners = map[ownerKey[T]]*owner[T]{}
	}
	o := &l.root
	for _, name := range path {
		key := ownerKey[T]{o, name}
		next := l.owners[key]
		if next == nil {
			next = &owner[T]{ownerKey: key, favor: 1}
			if times := l.favor[name]; times > 0 && o == &l.root {
				next.favor = times
			}
			l.owners[key] = next
			heap.Push(&o.below, next)
		}
		o = next
	}
	return o
}

// settle finds the victims anew, from o up, after its member e came, left or was touched.
func (o *owner[T]) settle(e *Element[T], more int) {
	for ; ; o = o.parent {
		before := o.victim
		o.held += more
		o.victim = o.first()
		if o.parent == nil || more == 0 && before != e && o.victim == before {
			return
		}
		heap.Fix(&o.parent.below, o.at)
	}
}

// first is whom o gives away first.
func (o *owner[T]) first() *Element[T] {
	if len(o.below) > 0 {
		return o.below[0].victim
	}
	for _, one := range o.own {
		if one.first != nil {
			return one.first.of
		}
	}
	return nil
}
