package fault

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Mark is one thing seen. Its names in snapshots are short: there are many.
type Mark struct {
	Time    int64    `json:"t"`
	Last    int64    `json:"l"`
	Began   int64    `json:"b,omitempty"` // what it tells of, if before Time
	After   int64    `json:"e,omitempty"` // the sample before it, where it happened between two
	Count   float64  `json:"c"`
	Values  []string `json:"v"`           // by field of the rule
	Ranks   []int    `json:"r,omitempty"` // of the list field called ranks
	Lists   Lists    `json:"n,omitempty"` // of other fields, where a link looks at them
	Members Members  `json:"m,omitempty"` // of lists of names, of which a link looks at each
	Source  string   `json:"s"`
	FaultID string   `json:"f,omitempty"`
	Span    string   `json:"a,omitempty"` // in which its record was written: ids of trace and span, as digits
	Run     string   `json:"w,omitempty"` // the start of the job that what it names is of, where its field says another
	Overdue int64    `json:"h,omitempty"` // when it came, if later than the lateness allows
	Series  uint64   `json:"i,omitempty"`
	Finding bool     `json:"d,omitempty"` // of a detector: the newest replaces those before it
	Drill   bool     `json:"x,omitempty"` // a drill made it, as its process has proven
	Late    bool     `json:"y,omitempty"` // it happened while nobody looked, and was read later
	Gone    bool     `json:"g,omitempty"` // the detector took it back: it shows nothing any more
	Was     *Mark    `json:"z,omitempty"` // where its thing was before, and has left by now

	Trust verdict.Trust `json:"u,omitempty"`

	size int32 // as bytes counted it, 0 where it has to count
}

// bytes is about how much memory m takes.
func (m *Mark) bytes() int {
	if m.size == 0 {
		m.size = int32(m.count()) //nolint:gosec // values and lists of ranks are bounded
	}
	return int(m.size)
}

func (m *Mark) count() int {
	n := int(unsafe.Sizeof(*m)) + 16*len(m.Values) + 8*len(m.Ranks) + len(m.Source) + len(m.FaultID) + len(m.Span) + len(m.Run)
	for _, v := range m.Values {
		n += len(v)
	}
	if m.Was != nil {
		n += m.Was.bytes()
	}
	for _, ranks := range m.Lists {
		n += 64 + 8*len(ranks)
	}
	for _, members := range m.Members { // with the place that each has in the graph of incidents
		n += 64 + 128*len(members)
		for _, one := range members {
			n += len(one)
		}
	}
	return n
}

// since is when that began which m tells of.
func (m *Mark) since() int64 {
	if m.Began != 0 {
		return m.Began
	}
	return m.Time
}

// later reports whether m happened after at for certain. What a counter shows may have happened
// at any time since the sample before.
func (m *Mark) later(at int64) bool {
	return m.Time > at && (m.After == 0 || m.After >= at)
}

// Lists are ranks by field.
type Lists map[int][]int

// Keep adds the ranks of a field that has none yet. Most records have none at all.
func (a Lists) Keep(field int, ranks []int) Lists {
	if len(ranks) == 0 {
		return a
	}
	if a == nil {
		a = Lists{}
	}
	a[field] = ranks
	return a
}

// Members are the members of lists by field, as text.
type Members map[int][]string

// MaxMembers bounds those of one list: the hosts of a job of 8,192 GPUs.
const MaxMembers = 1024

// Keep adds the members of a field that has none yet.
func (a Members) Keep(field int, members []string) Members {
	if len(members) == 0 {
		return a
	}
	if a == nil {
		a = Members{}
	}
	a[field] = members[:min(len(members), MaxMembers)]
	return a
}

// with returns a, and of b the fields that a has not.
func (a Members) with(b Members) Members {
	both := a
	for field, members := range b {
		if _, there := a[field]; !there {
			both = maps.Clone(both).Keep(field, members)
		}
	}
	return both
}

// with returns a and b together.
func (a Lists) with(b Lists) Lists {
	if len(b) == 0 {
		return a
	}
	both := maps.Clone(a)
	if both == nil {
		both = Lists{}
	}
	for field, ranks := range b {
		both[field] = union(both[field], ranks)
	}
	return both
}

// same reports whether both are reports of one thing: one storm, one sample of
// one series, or one record delivered twice. What is trusted differently never is.
func (m *Mark) same(o *Mark) bool {
	if m.Trust != o.Trust {
		return false
	}
	if m.FaultID != "" || o.FaultID != "" {
		return m.FaultID == o.FaultID && m.Source == o.Source
	}
	return m.Time == o.Time && m.Series == o.Series && m.Source == o.Source &&
		(m.Series != 0 || slices.Equal(m.Values, o.Values))
}

// find returns the place of the mark that m is a report of, below 0 for none. A mark is too
// large to be handed on by value.
func find(marks []Mark, m *Mark) int {
	for i := range marks {
		if marks[i].same(m) {
			return i
		}
	}
	return -1
}

// says reports whether o, a later finding of the same ID, says something else.
func (m *Mark) says(o *Mark) bool {
	return m.Gone != o.Gone || m.Run != o.Run || m.Late != o.Late || m.Time != o.Time || !slices.Equal(m.Values, o.Values) || !slices.Equal(m.Ranks, o.Ranks) ||
		!maps.EqualFunc(m.Lists, o.Lists, slices.Equal[[]int]) || !maps.EqualFunc(m.Members, o.Members, slices.Equal[[]string])
}

// merge takes over what o knows more than m: a storm's total, a later end.
func (m *Mark) merge(o *Mark) bool {
	before := *m
	if m.Series != 0 {
		m.Count = o.Count
	} else {
		m.Count = max(m.Count, o.Count)
	}
	if m.Began != 0 || o.Began != 0 {
		m.Began = min(m.since(), o.since())
	}
	if o.Time < m.Time || o.Time == m.Time && !o.Late {
		m.Late = o.Late
	}
	if o.Span != "" && (m.Span == "" || o.Time < m.Time || o.Time == m.Time && o.Span < m.Span) {
		m.Span = o.Span // that of the earlier, whichever came first
	}
	m.Time, m.Last = min(m.Time, o.Time), max(m.Last, o.Last)
	m.Ranks, m.Lists, m.Members, m.size = union(m.Ranks, o.Ranks), m.Lists.with(o.Lists), m.Members.with(o.Members), 0
	return m.Count != before.Count || m.Time != before.Time || m.Last != before.Last || m.Began != before.Began || m.Late != before.Late || len(m.Ranks) != len(before.Ranks)
}

// union returns the sorted ranks of both.
func union(a, b []int) []int {
	if len(b) == 0 || slices.Equal(a, b) {
		return a
	}
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}

// compare orders marks by time; those of one time by what they hold, so that
// their order of arrival does not show.
func compare(m, o Mark) int {
	switch {
	case m.Time != o.Time:
		return cmp.Compare(m.Time, o.Time)
	case m.Series != o.Series:
		return cmp.Compare(int64(m.Series), int64(o.Series)) // signed, as snapshots have them
	case m.FaultID != o.FaultID:
		return strings.Compare(m.FaultID, o.FaultID)
	default:
		return cmp.Or(slices.Compare(m.Values, o.Values), cmp.Compare(o.Trust, m.Trust))
	}
}
