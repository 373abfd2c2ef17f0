package record

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// TestTextsAreValidUTF8: OTLP's texts are protobuf strings, which a strict reader refuses
// with all that is beside them.
func TestTextsAreValidUTF8(t *testing.T) {
	for _, raw := range []string{"\xff", "rank_\xc3(", "\xed\xa0\x80", "caf\xe9/\x00", "whole \u00e9", ""} {
		on := On(pcommon.NewMap())
		on.Str("name", raw)
		got, _ := on.on.Get("name")
		require.True(t, utf8.ValidString(got.Str()), "%q", raw)
		early := Early()
		early.Str("name", raw)
		require.Equal(t, got.Str(), early.early[0].text)
		record := plog.NewLogRecord()
		(&Head{Text: raw}).fill(record, "event")
		require.Equal(t, got.Str(), record.Body().Str())
		if utf8.ValidString(raw) {
			require.Equal(t, raw, got.Str())
		}
	}
}
