package cut

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

func TestLongTextsStayDifferent(t *testing.T) {
	long := strings.Repeat("node", 100)
	require.Equal(t, long, Text(long, 400))
	a, b := Text(long+"a", 256), Text(long+"b", 256)
	require.NotEqual(t, a, b)
	require.Equal(t, a, Text(long+"a", 256))
	require.Len(t, a, 256)
	require.True(t, strings.HasPrefix(a, long[:200]))
	require.Contains(t, a, "…")
	require.NotEqual(t, Text(a+"x", 256), a, "a text that looks cut is another")
}

// TestTheHashIsOfTheWhole: stored values are known by it after an update.
func TestTheHashIsOfTheWhole(t *testing.T) {
	for _, size := range []int{65, part - 1, part, part + 1, turn, turn + 1, 3*turn + 7} {
		s := strings.Repeat("node", size)[:size]
		sum := sha256.Sum256([]byte(s))
		require.Equal(t, hex.EncodeToString(sum[:hashed]), Text(s, 64)[64-2*hashed:], "%d bytes", size)
	}
}

// TestALongTextIsNotCopied: a copy of 16 MiB would be memory that no budget knows.
func TestALongTextIsNotCopied(t *testing.T) {
	long := strings.Repeat("x", 16<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	short := Text(long, 64)
	runtime.ReadMemStats(&after)
	require.Len(t, short, 64)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func FuzzText(f *testing.F) {
	f.Add(strings.Repeat("é", 200), 64)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = 32 + most&0xff
		short := Text(s, most)
		require.LessOrEqual(t, len(short), most)
		if utf8.ValidString(s) {
			require.True(t, utf8.ValidString(short), "%q", short)
		}
		require.Equal(t, short, Text(short, most), "what is cut is not cut again")
	})
}

var limits = Limits{Attributes: 4, Text: 64, Bytes: 1000}

func TestWhatKeepsTheLimitsIsNotCopied(t *testing.T) {
	r := plog.NewLogRecord()
	r.Body().SetStr("body")
	r.Attributes().PutStr("a", "b")
	same, cut := limits.Record(r)
	require.False(t, cut)
	require.Equal(t, r, same)
	_, cut = limits.Resource(pcommon.NewResource())
	require.False(t, cut)
}

func TestRecordsAreCutToTheLimits(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, fill := range map[string]func(plog.LogRecord){
		"long value":         func(r plog.LogRecord) { r.Attributes().PutStr("a", long) },
		"long name":          func(r plog.LogRecord) { r.Attributes().PutStr(long, "a") },
		"long bytes":         func(r plog.LogRecord) { r.Attributes().PutEmptyBytes("a").FromRaw([]byte(long)) },
		"long body":          func(r plog.LogRecord) { r.Body().SetStr(long) },
		"long text in a map": func(r plog.LogRecord) { r.Body().SetEmptyMap().PutEmptySlice("a").AppendEmpty().SetStr(long) },
		"many attributes": func(r plog.LogRecord) {
			for i := range 100 {
				r.Attributes().PutInt(string(rune('A'+i)), 1)
			}
		},
		"many members": func(r plog.LogRecord) {
			s := r.Attributes().PutEmptySlice("a")
			for range 1000 {
				s.AppendEmpty().SetInt(1)
			}
		},
		"many names in a map": func(r plog.LogRecord) {
			m := r.Attributes().PutEmptyMap("a")
			for i := range 100 {
				m.PutStr(string(rune('A'+i)), "value")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := plog.NewLogRecord()
			r.SetEventName("event")
			fill(r)
			short, cut := limits.Record(r)
			require.True(t, cut)
			require.Equal(t, "event", short.EventName())
			again, cut := limits.Record(short)
			require.False(t, cut, "%v", again.Attributes().AsRaw())
		})
	}
}
