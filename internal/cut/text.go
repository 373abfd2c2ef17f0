// Package cut shortens what strangers send before it is held: texts, attributes, and
// records as a whole.
package cut

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strings"
	"unicode/utf8"
)

// mark stands where a text was cut, before the hash of all of it.
const mark = "…"

// hashed is how many bytes of the hash a cut text ends with, in hex.
const hashed = 8

// Text returns s if it has no more than most bytes, else its beginning, an ellipsis and
// a hash of the whole: two long names that differ only behind the cut stay two. The
// result has no more than most bytes and does not keep s in memory. Most is at least 32.
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len(mark) - 2*hashed
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	var b strings.Builder
	b.Grow(most)
	b.WriteString(s[:end])
	b.WriteString(mark)
	b.WriteString(hex.EncodeToString(hash(s)[:hashed]))
	return b.String()
}

const (
	// part is how much of a text is copied and hashed at once. A copy of all would be as much
	// memory again, and keep the garbage collector waiting when it asks all to stop.
	part = 4 << 10
	// turn is after how much of it others may run. Texts of megabytes would each have a
	// processor for 10 ms (forcePreemptNS of Go's scheduler), and small ones wait behind all.
	turn = 64 << 10
)

// hash is the SHA-256 of s.
func hash(s string) []byte {
	h, buffer := sha256.New(), make([]byte, min(len(s), part))
	for at := 0; at < len(s); at += len(buffer) {
		if at > 0 && at%turn == 0 {
			runtime.Gosched()
		}
		_, _ = h.Write(buffer[:copy(buffer, s[at:])]) // it returns no error
	}
	return h.Sum(nil)
}
