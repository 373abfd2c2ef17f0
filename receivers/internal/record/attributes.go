package record

import (
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// Attributes takes the attributes of an event: on a map, or in a list until a record
// begins. Most lines of a storm never become a record, and the list is cheap. Only
// generated code calls the methods that write: it knows the keys.
type Attributes struct {
	on    pcommon.Map
	begun bool
	early []attribute

	record plog.LogRecord // that they are of, once Begin began one
	trace  identity.Trace // until then
}

// attribute is one of the list.
type attribute struct {
	key   string
	kind  pcommon.ValueType
	text  string
	bits  uint64         // of a number or a truth
	value *pcommon.Value // of a list or a map
}

// On writes attributes on a map.
func On(attributes pcommon.Map) *Attributes { return &Attributes{on: attributes, begun: true} }

// Early keeps attributes for a record that begins later, or never.
func Early() *Attributes { return &Attributes{early: make([]attribute, 0, 6)} }

// setTrace says in which span the record was written. Where a record is about several
// processes, the one that is stamped last says it.
func (a *Attributes) setTrace(t identity.Trace) {
	switch {
	case !t.Known():
	case a.record == (plog.LogRecord{}):
		a.trace = t
	default:
		a.record.SetTraceID(t.TraceID)
		a.record.SetSpanID(t.SpanID)
		a.record.SetFlags(plog.DefaultLogRecordFlags.WithIsSampled(t.Flags&1 != 0))
	}
}

// Str writes a text. Protobuf has no text that is not UTF-8: names of files and processes
// may be any bytes.
func (a *Attributes) Str(key, v string) {
	v = strings.ToValidUTF8(v, "\uFFFD")
	if a.begun {
		a.on.PutStr(key, v)
	} else {
		a.early = append(a.early, attribute{key: key, kind: pcommon.ValueTypeStr, text: v})
	}
}

// Text writes a text unless it is empty.
func (a *Attributes) Text(key, v string) {
	if v != "" {
		a.Str(key, v)
	}
}

// Int writes a whole number.
func (a *Attributes) Int(key string, v int64) {
	if a.begun {
		a.on.PutInt(key, v)
	} else {
		a.early = append(a.early, attribute{key: key, kind: pcommon.ValueTypeInt, bits: uint64(v)})
	}
}

// Bool writes a truth.
func (a *Attributes) Bool(key string, v bool) {
	if a.begun {
		a.on.PutBool(key, v)
		return
	}
	one := attribute{key: key, kind: pcommon.ValueTypeBool}
	if v {
		one.bits = 1
	}
	a.early = append(a.early, one)
}

// Double writes a number.
func (a *Attributes) Double(key string, v float64) {
	if a.begun {
		a.on.PutDouble(key, v)
	} else {
		a.early = append(a.early, attribute{key: key, kind: pcommon.ValueTypeDouble, bits: math.Float64bits(v)})
	}
}

// Slice begins a list.
func (a *Attributes) Slice(key string) pcommon.Slice {
	if a.begun {
		return a.on.PutEmptySlice(key)
	}
	v := pcommon.NewValueSlice()
	a.early = append(a.early, attribute{key: key, kind: pcommon.ValueTypeSlice, value: &v})
	return v.Slice()
}

// Map begins a map.
func (a *Attributes) Map(key string) pcommon.Map {
	if a.begun {
		return a.on.PutEmptyMap(key)
	}
	v := pcommon.NewValueMap()
	a.early = append(a.early, attribute{key: key, kind: pcommon.ValueTypeMap, value: &v})
	return v.Map()
}

// Copy returns attributes that begin as these, for a record of their own.
func (a *Attributes) Copy() *Attributes {
	if !a.begun {
		return &Attributes{early: append([]attribute(nil), a.early...), trace: a.trace}
	}
	m := pcommon.NewMap()
	a.on.CopyTo(m)
	return On(m)
}

// CopyTo writes the attributes on a map that may have others.
func (a *Attributes) CopyTo(m pcommon.Map) {
	if a.begun {
		for key, value := range a.on.All() {
			value.CopyTo(m.PutEmpty(key))
		}
		return
	}
	for i := range a.early {
		a.early[i].put(m)
	}
}

func (one *attribute) put(m pcommon.Map) {
	switch one.kind {
	case pcommon.ValueTypeStr:
		m.PutStr(one.key, one.text)
	case pcommon.ValueTypeInt:
		m.PutInt(one.key, int64(one.bits))
	case pcommon.ValueTypeBool:
		m.PutBool(one.key, one.bits == 1)
	case pcommon.ValueTypeDouble:
		m.PutDouble(one.key, math.Float64frombits(one.bits))
	default:
		one.value.CopyTo(m.PutEmpty(one.key))
	}
}

// AsRaw returns the attributes by name, for tests.
func (a *Attributes) AsRaw() map[string]any {
	m := pcommon.NewMap()
	a.CopyTo(m)
	return m.AsRaw()
}
