package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"
)

// maxValue is how much of a value is kept, in bytes.
const maxValue = 256

// clean bounds s and replaces what could write to a terminal: control
// characters and invalid UTF-8.
func clean(s string) string {
	plain := len(s) <= maxValue
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	s = strings.ToValidUTF8(s[:min(len(s), maxValue)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, s)
}

// tuple joins the values at positions; it is incomplete when one is unknown.
// A byte that clean never leaves in a value separates them.
func tuple(values []string, positions []int) (string, bool) {
	if len(positions) == 1 {
		v := values[positions[0]]
		return v, v != ""
	}
	var b strings.Builder
	for i, at := range positions {
		if values[at] == "" {
			return "", false
		}
		if i > 0 {
			b.WriteByte(0)
		}
		b.WriteString(values[at])
	}
	return b.String(), true
}

// known reports whether no value at positions is unknown.
func known(values []string, positions []int) bool {
	return !slices.ContainsFunc(positions, func(at int) bool { return values[at] == "" })
}

// identifier is a short hash of parts.
func identifier(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
