package rule

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/cut"
)

func TestDetectorsReadBoundedTexts(t *testing.T) {
	m := pcommon.NewMap()
	require.NoError(t, m.FromRaw(map[string]any{
		"text": "job", "number": 7, "list": []any{"a"}, "long": strings.Repeat("ä", maxText), "broken": "a\xff",
	}))
	for key, want := range map[string]string{"text": "job", "number": "7", "list": "", "none": "", "long": cut.Text(strings.Repeat("ä", maxText), maxText), "broken": "a?"} {
		require.Equal(t, want, Text(m, key), key)
	}
	number, ok := Integer(m, "number")
	require.True(t, ok)
	require.EqualValues(t, 7, number)
	for _, key := range []string{"text", "list", "none"} {
		_, ok := Integer(m, key)
		require.False(t, ok, key)
	}
}
