package rule

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A field that stands in many rules is parsed once, and is the same for all of them.
func TestATextIsParsedOnce(t *testing.T) {
	times := 0
	texts := Texts[string]{Parse: func(text string) string { times++; return strings.ToUpper(text) }}
	for range 3 {
		require.Equal(t, "A", texts.Of("a"))
		require.Equal(t, "B", texts.Of("b"))
	}
	require.Equal(t, 2, times)
}
