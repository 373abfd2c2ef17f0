// Package safetexttest has hostile text for tests, and says whether any of it came
// through.
package safetexttest

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Hostile is a text with one of each kind: a control sequence, C0 and C1 controls, a
// forged line, characters that reorder, hide or divide, invalid UTF-8, and markup.
const Hostile = "x\x1b[2J\x00\a\b\r\nforged line\x7f\u0085\u009b31m\u202e\u2066\u2069\u200b\u200d\ufeff\u2028\u2029\u00ad\u3164\ufe0f\U000e0041\xff\xc0\xaf<script>alert(1)</script>&"

// RequireSafe fails where a text of one line holds a character that does not show.
func RequireSafe(t testing.TB, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	for _, r := range text {
		if ' ' <= r && r <= '~' {
			continue
		}
		hidden := !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Bidi_Control, unicode.Zl, unicode.Zp, unicode.Cc, unicode.Cf)
		if hidden { // an assertion for each character of megabytes takes half of a test's time
			require.Failf(t, "a character that does not show", "%U in %q", r, text)
		}
	}
}
