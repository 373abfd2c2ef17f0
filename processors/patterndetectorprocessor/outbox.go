package patterndetectorprocessor

// outbox holds verdicts, encoded as JSON, until the next consumer took them, in
// the order in which they were made. Numbers run from head to tail without
// gaps; when full, the oldest goes.
type outbox struct {
	mostItems, mostBytes int

	head  uint64   // number of items[0]
	items [][]byte // item n is items[n-head]
	bytes int
}

func (o *outbox) tail() uint64 { return o.head + uint64(len(o.items)) }

// add appends one verdict and returns how many had to go.
func (o *outbox) add(item []byte) (dropped int) {
	o.items = append(o.items, item)
	o.bytes += len(item)
	return o.trim()
}

// trim drops the oldest beyond the limits.
func (o *outbox) trim() (dropped int) {
	for len(o.items) > o.mostItems || o.bytes > o.mostBytes {
		o.dropThrough(o.head)
		dropped++
	}
	return dropped
}

// first returns up to n of the oldest verdicts and the number of the last.
func (o *outbox) first(n int) (items [][]byte, last uint64) {
	n = min(n, len(o.items))
	return append([][]byte(nil), o.items[:n]...), o.head + uint64(n) - 1
}

// dropThrough forgets everything up to and including a number.
func (o *outbox) dropThrough(number uint64) {
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
