package rule

import (
	"cmp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/cut"
)

// maxText is how much of one text a detector keeps, in bytes, as an engine does of
// the values of fields.
const maxText = 256

// Job is the job that a record is about: its id, or else where its ranks meet.
func Job(attributes pcommon.Map) string {
	return cmp.Or(Text(attributes, AttributeJob), Text(attributes, AttributeRendezvous))
}

// JobInDomain reads the id of the job that a record of training code is about, and its
// domain: those of the record, else those of its sender. The domain is "" where nobody
// knows it; such a job is not the one of the same id in a known domain.
func (r *Record) JobInDomain() (id, domain string) {
	return cmp.Or(Text(r.Attributes, AttributeJob), Text(r.Resource, AttributeJob)),
		cmp.Or(Text(r.Attributes, AttributeJobDomain), Text(r.Resource, AttributeJobDomain))
}

// Text reads an attribute for a detector: at most 256 bytes of valid UTF-8, as cut.Text leaves them, that
// hold on to nothing else; "" for none, and for lists and maps.
func Text(m pcommon.Map, key string) string {
	v, ok := m.Get(key)
	if !ok {
		return ""
	}
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return strings.ToValidUTF8(strings.Clone(cut.Text(v.Str(), maxText)), "?")
	case pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeBool:
		return v.AsString()
	default:
		return ""
	}
}

// Integer reads a whole number; false for none, and for what is none.
func Integer(m pcommon.Map, key string) (int64, bool) {
	v, ok := m.Get(key)
	if !ok || v.Type() != pcommon.ValueTypeInt {
		return 0, false
	}
	return v.Int(), true
}
