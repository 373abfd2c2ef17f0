package stacksreceiver

import "time"

// bucket fills with one each so often, up to its size. It begins full.
type bucket struct {
	size  int
	each  time.Duration
	spent int
	at    time.Time // until when it was filled
}

// take takes n, if so many are there.
func (b *bucket) take(now time.Time, n int) bool { return b.takeKeeping(now, n, 0) }

// takeKeeping takes n, if so many are there and others are left.
func (b *bucket) takeKeeping(now time.Time, n, others int) bool {
	if !b.has(now, n, others) {
		return false
	}
	b.spent += n
	return true
}

// has reports whether n are there and others beside them.
func (b *bucket) has(now time.Time, n, others int) bool {
	if b.spent == 0 || now.Before(b.at) {
		b.at = now
	}
	back := int(now.Sub(b.at) / b.each)
	b.at = b.at.Add(time.Duration(back) * b.each)
	b.spent = max(0, b.spent-back)
	return b.spent+n <= b.size-others
}

// What the ranks of one domain may say: a node with 256 ranks says at once that all stand. The
// record of its end is paid with the first: who is not told to go on is taken to stand.
const (
	recordsAtOnce = 512
	recordPause   = time.Second
	textAtOnce    = 2 << 20 // bytes of frames
	textPause     = time.Second / (16 << 10)
)

// recordsKept are for ranks that do not wait for others: they may be whom these wait for.
const recordsKept = recordsAtOnce / 4

// keptFrom is how many records are kept from a rank.
func keptFrom(waits bool) int {
	if waits {
		return recordsKept
	}
	return 0
}

// budget is what a domain may say.
type budget struct {
	records, text bucket
	taken         int // stacks, at all; who took fewest comes first
}

func newBudget() *budget {
	return &budget{records: bucket{size: recordsAtOnce, each: recordPause}, text: bucket{size: textAtOnce, each: textPause}}
}

// texts are the hashes of stacks whose frames have left, and when: of the ranks of one job on
// this node. Who reads them looks them up by hash.
type texts map[uint64]time.Time

const (
	maxTexts = 256 // hashes
	// textAgain is when frames leave once more: who reads them may have begun later. The
	// processor patterndetector holds records for 35 minutes.
	textAgain = 30 * time.Minute
)

// first reports whether the frames of that hash are to leave, and remembers it.
func (t texts) first(now time.Time, hash uint64) bool {
	if at, left := t[hash]; left && now.Sub(at) < textAgain {
		return false
	}
	if len(t) >= maxTexts {
		clear(t)
	}
	t[hash] = now
	return true
}
