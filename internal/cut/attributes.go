package cut

import "go.opentelemetry.io/collector/pdata/pcommon"

// Limits are of what one record, or one resource, brings.
type Limits struct {
	Attributes int // of a record, a resource, and of each map in them
	Text       int // bytes of one name or value
	Bytes      int // of all together
}

// perValue is what a value costs beside its bytes.
const perValue = 24

// Within reports whether attributes keep the limits as they are, which most do.
func (l Limits) Within(m pcommon.Map) bool {
	left := l.Bytes
	return l.within(m, &left)
}

func (l Limits) within(m pcommon.Map, left *int) bool {
	if m.Len() > l.Attributes {
		return false
	}
	for name, v := range m.All() {
		if *left -= len(name); len(name) > l.Text || !l.valueWithin(v, left) {
			return false
		}
	}
	return true
}

func (l Limits) valueWithin(v pcommon.Value, left *int) bool {
	*left -= perValue + size(v)
	if *left < 0 || size(v) > l.Text {
		return false
	}
	switch v.Type() {
	case pcommon.ValueTypeMap:
		return l.within(v.Map(), left)
	case pcommon.ValueTypeSlice:
		for _, member := range v.Slice().All() {
			if !l.valueWithin(member, left) {
				return false
			}
		}
	}
	return true
}

// size is how many bytes a text has, 0 for what is none.
func size(v pcommon.Value) int {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return len(v.Str())
	case pcommon.ValueTypeBytes:
		return v.Bytes().Len()
	default:
		return 0
	}
}

// Copy makes to a copy of attributes that keeps the limits: long texts are cut, and
// what comes after the limit of number or bytes is left out.
func (l Limits) Copy(m, to pcommon.Map) {
	left := l.Bytes
	for name, v := range m.All() {
		l.put(name, v, to, &left)
	}
}

// put keeps the first of equal names, for it is the one that readers find.
func (l Limits) put(name string, v pcommon.Value, to pcommon.Map, left *int) {
	name = Text(name, l.Text)
	if _, there := to.Get(name); there || to.Len() == l.Attributes {
		return
	}
	*left -= len(name) + perValue + min(size(v), l.Text)
	if *left >= 0 {
		l.value(v, to.PutEmpty(name), left)
	}
}

// value copies a value of which the first bytes have room.
func (l Limits) value(v, to pcommon.Value, left *int) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		to.SetStr(Text(v.Str(), l.Text))
	case pcommon.ValueTypeBytes:
		to.SetEmptyBytes().FromRaw(v.Bytes().AsRaw()[:min(v.Bytes().Len(), l.Text)])
	case pcommon.ValueTypeMap:
		inner := to.SetEmptyMap()
		for name, member := range v.Map().All() {
			l.put(name, member, inner, left)
		}
	case pcommon.ValueTypeSlice:
		inner := to.SetEmptySlice()
		for _, member := range v.Slice().All() {
			if *left -= perValue + min(size(member), l.Text); *left < 0 {
				return
			}
			l.value(member, inner.AppendEmpty(), left)
		}
	default:
		v.CopyTo(to)
	}
}
