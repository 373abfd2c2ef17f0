package fault

import "math/bits"

// held is which pieces of evidence of a rule hold, one bit each, by their index. A rule has no more of them (maxEvidence of patterns/rule).
type held [2]uint64

func (h *held) add(i int)     { h[i/64] |= 1 << (i % 64) }
func (h *held) remove(i int)  { h[i/64] &^= 1 << (i % 64) }
func (h held) has(i int) bool { return i < len(h)*64 && h[i/64]&(1<<(i%64)) != 0 } // what resolves comes after them

// without are those that are not in o.
func (h held) without(o held) held {
	for i := range h {
		h[i] &^= o[i]
	}
	return h
}

// first is the one that comes first in the file.
func (h held) first() int {
	for i, word := range h {
		if word != 0 {
			return i*64 + bits.TrailingZeros64(word)
		}
	}
	return len(h) * 64
}

func (h held) count() (n int) {
	for _, word := range h {
		n += bits.OnesCount64(word)
	}
	return n
}
