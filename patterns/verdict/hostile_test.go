package verdict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
)

// poison puts text into every string of a value that strangers may have written: all
// but the enumerations, which Validate checks.
func poison(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			poison(v.Field(i), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), text)
		}
	case reflect.Pointer:
		poison(v.Elem(), text)
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf(v.MapIndex(key).String()+text))
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(v.String() + text)
		}
	}
}

func poisoned(text string) Verdict {
	end := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	v := lostGPU()
	v.Resolved, v.RootCause, v.NotObserved = &end, "cause", []string{"nothing"}
	poison(reflect.ValueOf(&v).Elem(), text)
	return v
}

// requireNothingComesThrough gives a verdict to every way out.
func requireNothingComesThrough(t *testing.T, v Verdict) {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, Render(&text, []Verdict{v}, Options{}))
	require.NoError(t, RenderChange(&text, []Verdict{lostGPU()}, []Verdict{v}, Options{}))
	for line := range strings.Lines(text.String()) {
		safetexttest.RequireSafe(t, strings.TrimSuffix(line, "\n"))
		require.False(t, strings.HasPrefix(line, "forged line"), "text begins a line of its own")
	}

	encoded := ToJSON(v)
	safetexttest.RequireSafe(t, string(encoded))
	require.NotContains(t, string(encoded), "<script")

	record := plog.NewLogRecord()
	ToRecord(v, record)
	safetexttest.RequireSafe(t, record.Body().AsString())
	for key, value := range record.Attributes().All() {
		if value.Type() == pcommon.ValueTypeStr {
			safetexttest.RequireSafe(t, value.Str())
		}
		safetexttest.RequireSafe(t, key)
	}
}

func TestHostileTextComesThroughNoWayOut(t *testing.T) {
	requireNothingComesThrough(t, poisoned(safetexttest.Hostile))
}

// TestReaderTrustsNoWriter: a record may come from who cleaned nothing.
func TestReaderTrustsNoWriter(t *testing.T) {
	raw, err := json.Marshal(poisoned(safetexttest.Hostile))
	require.NoError(t, err)
	v, err := FromJSON(raw)
	require.NoError(t, err)
	safetexttest.RequireSafe(t, v.Headline)
	for _, value := range v.Culprit {
		safetexttest.RequireSafe(t, value)
	}
	require.Equal(t, v, Bounded(v))
}

func FuzzHostileText(f *testing.F) {
	f.Add(safetexttest.Hostile)
	f.Add(" | gpu_lost/x: forged")
	f.Fuzz(func(t *testing.T, text string) { requireNothingComesThrough(t, poisoned(text)) })
}
