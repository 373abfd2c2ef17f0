package journal

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// Outbox holds encoded items until the next consumer took them, in the order in
// which they were made. When it is full, the owner that holds most loses its oldest: a
// flood of one takes no room from the others.
type Outbox struct {
	// Name tells a second outbox of a journal from the first, which has none.
	Name                 string
	MostItems, MostBytes int // bounds
	// Owner is whose room an item takes, as fairlru says it; nil: all are one's.
	Owner func(item []byte) []string
	// Order is the empty order of the items; the zero value favors nobody.
	Order fairlru.List[uint64]

	next  uint64    // number of the next item
	slots []waiting // by number; those that have gone leave soon
	bytes int

	stored []uint64 // items that are in the storage, in order
	// unsure: a write failed, and may have been made all the same. The bounds are written
	// again: an item below them is none.
	unsure bool
}

// waiting is an item, or one that has gone.
type waiting struct {
	number uint64
	item   []byte
	place  *fairlru.Element[uint64] // nil once it has gone
}

// ordinary is the size of an item; a larger one counts as several when room is shared.
const ordinary = 4 << 10

// Len is the number of items that wait.
func (o *Outbox) Len() int { return o.Order.Len() }

// Add appends one item and returns how many had to go.
func (o *Outbox) Add(item []byte) (dropped int) { return o.AddOf(o.ownerOf(item), item) }

// AddOf is Add where it is known whose room the item takes, which is what Owner says of it.
func (o *Outbox) AddOf(owner []string, item []byte) (dropped int) {
	o.put(o.next, owner, item)
	return o.Trim()
}

func (o *Outbox) ownerOf(item []byte) []string {
	if o.Owner == nil {
		return nil
	}
	return o.Owner(item)
}

func (o *Outbox) put(number uint64, owner []string, item []byte) {
	place := o.Order.Add(number, fairlru.Some, owner...)
	o.Order.Resize(place, 1+len(item)/ordinary)
	o.slots = append(o.slots, waiting{number, item, place})
	o.bytes += len(item)
	o.next = number + 1
}

// Trim drops what is beyond the limits.
func (o *Outbox) Trim() (dropped int) {
	for o.Len() > o.MostItems || o.bytes > o.MostBytes {
		victim, _ := o.Order.Victim()
		at, _ := slices.BinarySearchFunc(o.slots, victim.Value, func(w waiting, number uint64) int {
			return cmp.Compare(w.number, number)
		})
		o.drop(&o.slots[at])
		dropped++
		if len(o.slots) > 2*o.Len()+64 {
			o.tidy()
		}
	}
	return dropped
}

func (o *Outbox) drop(w *waiting) {
	if w.place != nil {
		o.Order.Remove(w.place)
		o.bytes -= len(w.item)
		w.item, w.place = nil, nil
	}
}

// tidy forgets what has gone.
func (o *Outbox) tidy() {
	o.slots = slices.DeleteFunc(o.slots, func(w waiting) bool { return w.place == nil })
	if len(o.slots) == 0 {
		o.slots = nil // gives the backing array back
	}
}

// First returns up to n of the oldest items and the number of the last.
func (o *Outbox) First(n int) (items [][]byte, last uint64) {
	for i := range o.slots {
		if len(items) == n {
			break
		}
		if o.slots[i].place != nil {
			items, last = append(items, o.slots[i].item), o.slots[i].number
		}
	}
	return items, last
}

// DropThrough forgets everything up to and including a number.
func (o *Outbox) DropThrough(number uint64) {
	taken := 0
	for taken < len(o.slots) && o.slots[taken].number <= number {
		o.drop(&o.slots[taken])
		taken++
	}
	o.slots = o.slots[taken:]
	if len(o.slots) == 0 {
		o.slots = nil
	}
}

// renumber gives the items the numbers from there on.
func (o *Outbox) renumber(from uint64) {
	o.tidy()
	o.next = from
	for i := range o.slots {
		o.slots[i].number, o.slots[i].place.Value = o.next, o.next
		o.next++
	}
}

// head is the number of the first item, or of the next.
func (o *Outbox) head() uint64 {
	for i := range o.slots {
		if o.slots[i].place != nil {
			return o.slots[i].number
		}
	}
	return o.next
}
