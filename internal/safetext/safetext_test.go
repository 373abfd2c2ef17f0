package safetext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"GPU 0000:65:00.0, 64 GiB":    "GPU 0000:65:00.0, 64 GiB",
		"Übergröße 計算 🔥":              "Übergröße 計算 🔥",
		"a\nb\tc\rd":                  "a b c d",
		"\x1b[2J\x00\a":               `\x1b[2J\x00\a`,
		"\u0085\u00a0":                "  ",
		"\u009b31m\x7f":               `\u009b31m\x7f`,
		"\u202egnp.exe\u2066":         `\u202egnp.exe\u2066`,
		"no\u200bde\ufeff\u2060":      `no\u200bde\ufeff\u2060`,
		"a\u2028b\u2029c":             "a b c",
		"filler\u3164\u115f\ufe0f":    `filler\u3164\u115f\ufe0f`,
		"tag\U000e0041":               `tag\U000e0041`,
		"cut \xff\xc3":                "cut \ufffd\ufffd",
		"already escaped \\x1b stays": `already escaped \x1b stays`,
	} {
		require.Equal(t, want, safetext.Line(text), "%q", text)
		require.Equal(t, want, safetext.Line(want), "twice is once")
	}
}

func TestObjectIsNoMarkup(t *testing.T) {
	require.Equal(t, `‹script›alert(1)‹/script› \x1b`, safetext.Object("<script>alert(1)</script> \x1b"))
}

func TestClip(t *testing.T) {
	require.Equal(t, "short", safetext.Clip("short", 5))
	require.Equal(t, "sh…", safetext.Clip("shorter", 5))
	cut := safetext.Clip(strings.Repeat("é", 100), 10)
	require.True(t, utf8.ValidString(cut))
	require.LessOrEqual(t, len(cut), 10)
}

func TestJSONKeepsTheValue(t *testing.T) {
	hostile := safetexttest.Hostile
	text, err := safetext.Marshal(map[string]any{"a": hostile, "b": []string{"plain"}})
	require.NoError(t, err)
	safetexttest.RequireSafe(t, string(text))
	var back struct{ A string }
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, []rune(hostile), []rune(back.A))

	require.Equal(t, `"\ufffd"`, string(safetext.JSON([]byte("\"\xff\""))))
	pretty := []byte("{\n\t\"a\": \"x\u200b\"\n}")
	require.Equal(t, "{\n\t\"a\": \"x\\u200b\"\n}", string(safetext.JSON(pretty)))
}

func FuzzText(f *testing.F) {
	f.Add(safetexttest.Hostile)
	f.Add("plain")
	f.Add("\U0010ffff<&>")
	f.Fuzz(func(t *testing.T, text string) {
		line := safetext.Line(text)
		safetexttest.RequireSafe(t, line)
		require.Equal(t, line, safetext.Line(line))
		object := safetext.Clip(safetext.Object(text), 64)
		safetexttest.RequireSafe(t, object)
		require.NotContains(t, object, "<")
		require.LessOrEqual(t, len(object), 64)
		encoded, err := safetext.Marshal(text)
		require.NoError(t, err)
		safetexttest.RequireSafe(t, string(encoded))
		require.NotContains(t, string(encoded), "<")
		var back string
		require.NoError(t, json.Unmarshal(encoded, &back))
		require.Equal(t, []rune(text), []rune(back))
	})
}
