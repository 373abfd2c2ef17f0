// Package cut shortens what strangers send before it is held: texts, attributes, and
// records as a whole.
package cut

import (
	"crypto/sha256"
	"encoding/hex"
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
	sum := sha256.Sum256([]byte(s))
	var b strings.Builder
	b.Grow(most)
	b.WriteString(s[:end])
	b.WriteString(mark)
	b.WriteString(hex.EncodeToString(sum[:hashed]))
	return b.String()
}
