package engine

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestALongValueIsCutBeforeItIsEscaped: each field of each rule that reads a value cleans it.
func TestALongValueIsCutBeforeItIsEscaped(t *testing.T) {
	long := strings.Repeat("\x1b", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a, b := clean(long+"a"), clean(long+"b")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3<<20)) // the two arguments, and little else
	require.NotEqual(t, a, b)
	for _, s := range []string{a, b} {
		require.LessOrEqual(t, len(s), maxValue)
		require.NotContains(t, s, "\x1b")
	}
}
