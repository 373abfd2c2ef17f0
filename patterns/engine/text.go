package engine

import (
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
