package rule

import (
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxAge bounds how long before its record something may have begun.
const maxAge = 30 * 24 * int64(3600e9)

// beginning is the attribute of an event that says since when what it tells of lasts:
// how long by then, in units of so many nanoseconds, or the moment, where unit is 0.
type beginning struct {
	attribute string
	unit      float64
}

// beginnings are those of all events that have one, the best first. This is the one place that says where
// it is read. A socket's silence (nccl.socket.stall) is none: it begins with the last byte
// of a healthy step.
func beginnings() map[string][]beginning {
	return map[string][]beginning{
		"fuse.stall":                 {{"fuse.stall.age_ns", 1}},
		"host.boot":                  {{"host.uptime_ns", 1}},
		"host.lockup":                {{"kernelevents.blocked_seconds", 1e9}},
		"nccl.collective.incomplete": {{"nccl.collective.since_unix_nano", 0}, {"nccl.collective.waited_ns", 1}},
		"network.rdma.port":          {{"network.rdma.port.inactive_ns", 1}},
	}
}

// lasts are attributes of events with the moment at which a thing last did what they are about: a record
// that says how it is now (`newest`) is of that moment, and no word of what came after it.
func lasts() map[string]beginning {
	return map[string]beginning{"nccl.call.stopped": {"nccl.call.last_unix_nano", 0}}
}

// Beginnings reads since when what a record tells of lasts.
type Beginnings struct {
	of    map[string][]beginning
	lasts map[string]beginning
}

// NewBeginnings knows all events that say it.
func NewBeginnings() Beginnings { return Beginnings{of: beginnings(), lasts: lasts()} }

// Last is the moment at which a thing last did what a record of that event and time is about; its own
// time where it does not say.
func (b Beginnings) Last(event string, time int64, attributes pcommon.Map) int64 {
	if one, known := b.lasts[event]; known {
		if v, ok := attributes.Get(one.attribute); ok {
			return one.read(v, time)
		}
	}
	return time
}

// Began is the moment at which began what a record of that event and time tells of; its
// own time where it does not say, or says what cannot be.
func (b Beginnings) Began(event string, time int64, attributes pcommon.Map) int64 {
	for _, one := range b.of[event] {
		if v, ok := attributes.Get(one.attribute); ok {
			return one.read(v, time)
		}
	}
	return time
}

func (one beginning) read(v pcommon.Value, time int64) int64 {
	began := time - int64(min(max(numberOf(v)*one.unit, 0), math.MaxInt64/2))
	if one.unit == 0 {
		began = v.Int()
	}
	if began <= 0 || began > time || began < time-maxAge {
		return time
	}
	return began
}

// IsAge reports whether a field says how long something lasts by then: its newest value is
// true, its first was.
func (f *Field) IsAge() bool {
	for _, all := range beginnings() {
		for _, one := range all {
			if one.unit != 0 && strings.Contains(f.Expr, `"`+one.attribute+`"`) {
				return true
			}
		}
	}
	return false
}

func numberOf(v pcommon.Value) float64 {
	if v.Type() == pcommon.ValueTypeDouble {
		return v.Double()
	}
	return float64(v.Int())
}

// beganAttributes are those read on the records of e.
func (e *Evidence) beganAttributes() (names []string) {
	known := beginnings()
	for _, event := range e.Logs {
		for _, one := range known[event] {
			names = append(names, one.attribute)
		}
		if one, ok := lasts()[event]; ok && e.Newest {
			names = append(names, one.attribute)
		}
	}
	return names
}
