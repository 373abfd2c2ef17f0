package ingress

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const (
	// correctedKey is on the resource of what an agent with a wrong clock sends: what was added to its
	// times. This package alone sets it.
	correctedKey = "tracecore.clock.corrected"
	// momentSuffix ends the names of attributes that are times of the wall clock.
	momentSuffix = "unix_nano"
)

// clock corrects the times of a machine whose clock is not that of this one.
type clock time.Duration

// resource says that the times of a resource are corrected. What it says of that before is another's word.
func (c clock) resource(m pcommon.Map) {
	m.Remove(correctedKey)
	if c != 0 {
		m.PutDouble(correctedKey, time.Duration(c).Seconds())
		c.attributes(m)
	}
}

// moment moves a time; 0 is none.
func (c clock) moment(t pcommon.Timestamp) pcommon.Timestamp {
	return pcommon.Timestamp(c.nanoseconds(int64(t))) //nolint:gosec // nanoseconds leaves what would be below zero
}

func (c clock) nanoseconds(t int64) int64 {
	if moved := t + int64(c); t > 0 && moved > 0 {
		return moved
	}
	return t
}

// attributes moves the times among attributes, and those in their lists and maps.
func (c clock) attributes(m pcommon.Map) {
	for key, value := range m.All() {
		switch {
		case value.Type() != pcommon.ValueTypeInt:
			c.value(value)
		case strings.HasSuffix(key, momentSuffix):
			value.SetInt(c.nanoseconds(value.Int()))
		}
	}
}

func (c clock) value(v pcommon.Value) {
	switch v.Type() {
	case pcommon.ValueTypeMap:
		c.attributes(v.Map())
	case pcommon.ValueTypeSlice:
		for _, one := range v.Slice().All() {
			c.value(one)
		}
	}
}

func (c clock) log(lr plog.LogRecord) {
	if c == 0 {
		return
	}
	lr.SetTimestamp(c.moment(lr.Timestamp()))
	lr.SetObservedTimestamp(c.moment(lr.ObservedTimestamp()))
	c.attributes(lr.Attributes())
	c.value(lr.Body())
}

func (c clock) span(s ptrace.Span) {
	if c == 0 {
		return
	}
	s.SetStartTimestamp(c.moment(s.StartTimestamp()))
	s.SetEndTimestamp(c.moment(s.EndTimestamp()))
	c.attributes(s.Attributes())
	for _, e := range s.Events().All() {
		e.SetTimestamp(c.moment(e.Timestamp()))
		c.attributes(e.Attributes())
	}
}

// point is a data point of any type.
type point interface {
	Timestamp() pcommon.Timestamp
	SetTimestamp(pcommon.Timestamp)
	StartTimestamp() pcommon.Timestamp
	SetStartTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
}

func (c clock) point(p point) {
	if c == 0 {
		return
	}
	p.SetTimestamp(c.moment(p.Timestamp()))
	p.SetStartTimestamp(c.moment(p.StartTimestamp()))
	c.attributes(p.Attributes())
	if e, ok := p.(interface{ Exemplars() pmetric.ExemplarSlice }); ok {
		c.exemplars(e.Exemplars())
	}
}

func (c clock) exemplars(all pmetric.ExemplarSlice) {
	for _, e := range all.All() {
		e.SetTimestamp(c.moment(e.Timestamp()))
	}
}
