// Package safetext makes text that strangers wrote safe for those who read it: a
// process names itself, a tenant names its job and its pod, anyone writes to the
// kernel log. Nothing that passes through here moves a cursor, hides or reorders
// characters, or begins a line of its own.
package safetext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// mark ends a text that was cut.
const mark = "…"

// shows reports whether a character has a shape of its own: no control or format
// character, none of private use, none that draws nothing (fillers, variation
// selectors).
func shows(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r < 0x7f
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Line is text for a terminal, a log or a label: one line of visible characters.
// White space becomes a space, all else that does not show becomes its escape
// ("\x1b"), so that a forged text is seen for what it is.
func Line(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	var quoted [16]byte      // '\U0010ffff' is the longest
	for _, r := range text { // invalid UTF-8 comes out as U+FFFD
		switch {
		case shows(r):
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			b.Write(bytes.Trim(strconv.AppendQuoteRuneToASCII(quoted[:0], r), "'"))
		}
	}
	return b.String()
}

// Lines is a text of several lines, each a Line.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Line(lines[i])
	}
	return strings.Join(lines, "\n")
}

// plain reports whether text is visible ASCII, as nearly all is.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Object is text for a Kubernetes object: a Line that is no markup where a
// dashboard shows it.
func Object(text string) string { return brackets.Replace(Line(text)) }

var brackets = strings.NewReplacer("<", "‹", ">", "›")

// Clip cuts text to at most most bytes, at a character.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// JSON escapes in a JSON text what does not show and what is markup in a page. The
// values stay the same to every parser.
func JSON(text []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		// A string of JSON has line ends and tabs escaped already.
		if r != '\n' && r != '\r' && r != '\t' && (!shows(r) || r == '<' || r == '>' || r == '&' || r == utf8.RuneError && size == 1) {
			out = append(append(out, text[done:i]...), escaped(r)...)
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

func escaped(r rune) string {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Marshal is json.Marshal with every text made safe by JSON.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return JSON(text), err
}
