package fairlru

// chain is a list of elements through the links inside them.
type chain[T any] struct{ first, last *links[T] }

type links[T any] struct {
	of         *Element[T]
	prev, next *links[T]
}

func (c *chain[T]) push(at *links[T]) {
	at.prev, at.next = c.last, nil
	if c.last == nil {
		c.first = at
	} else {
		c.last.next = at
	}
	c.last = at
}

func (c *chain[T]) remove(at *links[T]) {
	if at.prev == nil {
		c.first = at.next
	} else {
		at.prev.next = at.next
	}
	if at.next == nil {
		c.last = at.prev
	} else {
		at.next.prev = at.prev
	}
}

// owners is a heap: the owner that gives way first is the first.
type owners[T any] []*owner[T]

func (h owners[T]) Len() int { return len(h) }

func (h owners[T]) Less(i, j int) bool {
	a, b := h[i], h[j]
	mine, theirs := a.held*b.favor, b.held*a.favor
	switch {
	case mine != theirs:
		return mine > theirs
	case a.victim.worth != b.victim.worth:
		return a.victim.worth < b.victim.worth
	default:
		return a.victim.touched < b.victim.touched
	}
}

func (h owners[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *owners[T]) Push(o any) {
	one := o.(*owner[T])
	one.at = len(*h)
	*h = append(*h, one)
}

func (h *owners[T]) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}
