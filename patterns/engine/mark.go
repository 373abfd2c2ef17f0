package engine

import (
	"maps"
	"slices"
	"strings"
)

// mark is one thing seen. Its names in snapshots are short: there are many.
type mark struct {
	Time    int64    `json:"t"`
	Last    int64    `json:"l"`
	Count   float64  `json:"c"`
	Values  []string `json:"v"`           // by field of the rule
	Ranks   []int    `json:"r,omitempty"` // of the list field called ranks
	Lists   lists    `json:"n,omitempty"` // of other fields, where a link looks at them
	Source  string   `json:"s"`
	FaultID string   `json:"f,omitempty"`
	Heard   int64    `json:"h,omitempty"` // when it came, if later than the lateness allows
	Series  uint64   `json:"i,omitempty"`
	Finding bool     `json:"d,omitempty"` // of a detector: the newest replaces those before it
	Gone    bool     `json:"g,omitempty"` // the detector took it back: it shows nothing any more
}

// lists are ranks by field.
type lists map[int][]int

// keep adds the ranks of a field that has none yet. Most records have none at all.
func (a lists) keep(field int, ranks []int) lists {
	if len(ranks) == 0 {
		return a
	}
	if a == nil {
		a = lists{}
	}
	a[field] = ranks
	return a
}

// with returns a and b together.
func (a lists) with(b lists) lists {
	if len(b) == 0 {
		return a
	}
	both := maps.Clone(a)
	if both == nil {
		both = lists{}
	}
	for field, ranks := range b {
		both[field] = union(both[field], ranks)
	}
	return both
}

// upsert inserts m in order of time, or corrects the mark it repeats. It
// reports whether it is the first of its kind, and whether anything changed.
func (e *Engine) upsert(inst *instance, w *watch, m mark) (first, changed bool) {
	marks := inst.marks[w.index]
	at := slices.IndexFunc(marks, func(o mark) bool { return o.same(&m) })
	if m.Finding {
		return inst.find(w, at, m)
	}
	if at >= 0 {
		if m.Count <= 0 {
			inst.marks[w.index] = slices.Delete(marks, at, at+1)
			return false, true
		}
		if !marks[at].merge(&m) {
			return false, false
		}
		slices.SortStableFunc(marks, func(a, b mark) int { return a.compare(&b) })
		return false, true
	}
	if m.Count <= 0 {
		return false, false
	}
	at, _ = slices.BinarySearchFunc(marks, m, func(a, b mark) int { return a.compare(&b) })
	marks = slices.Insert(marks, at, m)
	if len(marks) > e.opts.Marks { // the first stays: it is the onset
		e.stats.EvictedMarks++
		inst.folded[w.index] += marks[1].Count
		marks = slices.Delete(marks, 1, 2)
	}
	inst.marks[w.index] = marks
	return len(marks) == 1, true
}

// same reports whether both are reports of one thing: one storm, one sample of
// one series, or one record delivered twice.
func (m *mark) same(o *mark) bool {
	if m.FaultID != "" || o.FaultID != "" {
		return m.FaultID == o.FaultID && m.Source == o.Source
	}
	return m.Time == o.Time && m.Series == o.Series && m.Source == o.Source &&
		(m.Series != 0 || slices.Equal(m.Values, o.Values))
}

// merge takes over what o knows more than m: a storm's total, a later end.
func (m *mark) merge(o *mark) bool {
	before := *m
	if m.Series != 0 {
		m.Count = o.Count
	} else {
		m.Count = max(m.Count, o.Count)
	}
	m.Time, m.Last = min(m.Time, o.Time), max(m.Last, o.Last)
	m.Ranks, m.Lists = union(m.Ranks, o.Ranks), m.Lists.with(o.Lists)
	return m.Count != before.Count || m.Time != before.Time || m.Last != before.Last || len(m.Ranks) != len(before.Ranks)
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
func (m *mark) compare(o *mark) int {
	switch {
	case m.Time != o.Time:
		return compareInt(m.Time, o.Time)
	case m.Series != o.Series:
		return compareInt(int64(m.Series), int64(o.Series))
	case m.FaultID != o.FaultID:
		return strings.Compare(m.FaultID, o.FaultID)
	default:
		return slices.Compare(m.Values, o.Values)
	}
}

func compareInt(a, b int64) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}
