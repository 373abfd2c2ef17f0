package journal

// Outbox holds encoded items until the next consumer took them, in the order in
// which they were made. Numbers run from head to tail without gaps; when full, the
// oldest goes.
type Outbox struct {
	MostItems, MostBytes int // bounds

	head  uint64   // number of items[0]
	items [][]byte // item n is items[n-head]
	bytes int
}

// Len is the number of items that wait.
func (o *Outbox) Len() int { return len(o.items) }

func (o *Outbox) tail() uint64 { return o.head + uint64(len(o.items)) }

// Add appends one item and returns how many had to go.
func (o *Outbox) Add(item []byte) (dropped int) {
	o.items = append(o.items, item)
	o.bytes += len(item)
	return o.Trim()
}

// Trim drops the oldest beyond the limits.
func (o *Outbox) Trim() (dropped int) {
	for len(o.items) > o.MostItems || o.bytes > o.MostBytes {
		o.DropThrough(o.head)
		dropped++
	}
	return dropped
}

// First returns up to n of the oldest items and the number of the last.
func (o *Outbox) First(n int) (items [][]byte, last uint64) {
	n = min(n, len(o.items))
	return append([][]byte(nil), o.items[:n]...), o.head + uint64(n) - 1
}

// DropThrough forgets everything up to and including a number.
func (o *Outbox) DropThrough(number uint64) {
	for len(o.items) > 0 && o.head <= number {
		o.bytes -= len(o.items[0])
		o.items[0] = nil
		o.items = o.items[1:]
		o.head++
	}
	if len(o.items) == 0 {
		o.items = nil // gives the backing array back
	}
}
