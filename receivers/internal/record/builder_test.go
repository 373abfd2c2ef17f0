package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// thing is an event as tools/events makes it.
type thing struct{ attributes *Attributes }

func (thing) EventName() string         { return "thing" }
func (t thing) Attributes() *Attributes { return t.attributes }
func (t thing) Size(v int64)            { t.attributes.Int("size", v) }
func newTestBuilder(on bool) *Builder {
	return NewBuilder("scope", "1.0", map[string]bool{"thing": on})
}
func onlyRecord(l plog.Logs) plog.LogRecord {
	return l.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
}

func TestHeadFillsNameTimesSeverityAndBody(t *testing.T) {
	at := time.Unix(100, 5)
	for severity, number := range map[Severity]int{Info: 9, Warning: 13, Error: 17, Critical: 21, "odd": 0} {
		b := newTestBuilder(true)
		thing{b.Begin("thing", 1, Head{Time: at, Observed: at.Add(time.Second), Severity: severity, Text: "what happened"})}.Size(3)
		logs := b.Emit()
		scope := logs.ResourceLogs().At(0).ScopeLogs().At(0).Scope()
		require.Equal(t, "scope 1.0", scope.Name()+" "+scope.Version())
		r := onlyRecord(logs)
		require.Equal(t, "thing", r.EventName())
		require.Equal(t, at.UnixNano(), int64(r.Timestamp()))
		require.Equal(t, at.Add(time.Second).UnixNano(), int64(r.ObservedTimestamp()))
		require.Equal(t, number, int(r.SeverityNumber()))
		require.Equal(t, string(severity), r.SeverityText())
		require.Equal(t, "what happened", r.Body().Str())
		require.Equal(t, map[string]any{"size": int64(3), "tracecore.trust": "claimed"}, r.Attributes().AsRaw(), "nobody said that it is proven")
		require.Zero(t, b.Emit().LogRecordCount(), "a record is given out once")
	}
}

func TestAnEventThatIsOffIsNeverGivenOut(t *testing.T) {
	b := newTestBuilder(false)
	thing{b.Begin("thing", 1, Head{})}.Size(3)
	require.Zero(t, b.Emit().ResourceLogs().Len())
}

func TestAnEventCanBeAddedTwice(t *testing.T) {
	b, early := newTestBuilder(true), thing{Early()}
	early.Size(3)
	for range 2 {
		b.Add(Head{Trust: Proven}, early)
		r := onlyRecord(b.Emit())
		require.Equal(t, "thing", r.EventName())
		require.Equal(t, map[string]any{"size": int64(3), "tracecore.trust": "proven"}, r.Attributes().AsRaw())
	}
}

// Attributes that wait for a record are those that are written on one at once.
func TestEarlyAttributesAreTheSame(t *testing.T) {
	fill := func(a *Attributes) {
		a.Str("text", "")
		a.Text("optional", "")
		a.Text("optional", "x")
		a.Int("int", -3)
		a.Int("int", 4)
		a.Bool("yes", true)
		a.Bool("no", false)
		a.Double("double", -0.5)
		a.Slice("list").AppendEmpty().SetInt(3)
		a.Map("map").PutStr("k", "v")
	}
	want := map[string]any{
		"text": "", "optional": "x", "int": int64(4), "yes": true, "no": false, "double": -0.5,
		"list": []any{int64(3)}, "map": map[string]any{"k": "v"},
	}
	for name, a := range map[string]*Attributes{"early": Early(), "on a map": On(pcommon.NewMap())} {
		fill(a)
		require.Equal(t, want, a.AsRaw(), name)
		own := a.Copy()
		own.Int("more", 1)
		require.Equal(t, want, a.AsRaw(), name)
		require.Len(t, own.AsRaw(), len(want)+1, name)
	}
}

func TestResourceFiltersDropRecords(t *testing.T) {
	only := func(name string) []filter.Config { return []filter.Config{{Strict: name}} }
	for name, tt := range map[string]struct {
		filter ResourceFilter
		left   int
	}{
		"nothing asked":       {ResourceFilter{Attribute: "host.name"}, 1},
		"included":            {ResourceFilter{Attribute: "host.name", Include: only("node-1")}, 1},
		"not included":        {ResourceFilter{Attribute: "host.name", Include: only("node-2")}, 0},
		"excluded":            {ResourceFilter{Attribute: "host.name", Exclude: only("node-1")}, 0},
		"another excluded":    {ResourceFilter{Attribute: "host.name", Exclude: only("node-2")}, 1},
		"an attribute absent": {ResourceFilter{Attribute: "host.id", Include: only("x")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder("scope", "1.0", map[string]bool{"thing": true}, tt.filter)
			resource := pcommon.NewResource()
			resource.Attributes().PutStr("host.name", "node-1")
			b.SetResource(resource)
			b.Begin("thing", 1, Head{})
			logs := b.Emit()
			require.Equal(t, tt.left, logs.LogRecordCount())
			b.Begin("thing", 1, Head{})
			require.Equal(t, tt.left, b.Emit().LogRecordCount(), "nothing is left over from the last time")
		})
	}
}

func TestNumbersThatAreNotKnownAreLeftOut(t *testing.T) {
	m := pcommon.NewMap()
	set := func(key string) func(int64) { return func(v int64) { m.PutInt(key, v) } }
	NotZero(set("zero"), uint32(0))
	NotZero(set("below"), -1)
	NotNegative(set("negative"), -1)
	NotNegative(set("nothing"), 0)
	Numbers(func() pcommon.Slice { return m.PutEmptySlice("ranks") }, []uint32{3, 1})
	Numbers(func() pcommon.Slice { return m.PutEmptySlice("nobody") }, []int(nil))
	Texts(func() pcommon.Slice { return m.PutEmptySlice("lines") }, []string{"a"})
	Texts(func() pcommon.Slice { return m.PutEmptySlice("no_lines") }, nil)
	On(m).Text("empty", "")
	require.Equal(t, map[string]any{"below": int64(-1), "nothing": int64(0), "ranks": []any{int64(3), int64(1)}, "lines": []any{"a"}}, m.AsRaw())
}
