package fault

import (
	"slices"
	"time"
)

// A rank that goes on leaves the place where it stood. Its sockets tell only later that its stall is over.
// So a place that a verdict quotes is left for the time of leaves at the earliest, and what ends until
// then keeps it.

// leaves is how long after the stack of a rank moves the end of its stall is told: sockets and calls are
// looked at twice a second, and an end is told when they have moved for a while.
const leaves = int64(2500 * time.Millisecond)

// left reports whether m says that its thing has left its place: it has nothing of what the verdict quotes.
func (w *Evidence) left(m *Mark) bool {
	return w.Newest && len(w.quotes) > 0 && !slices.ContainsFunc(w.quotes, func(at int) bool { return m.Values[at] != "" })
}

// comesLate reports whether other, of the same thing, tells of it after m. What has left its place waits for
// the record of that.
func (w *Evidence) comesLate(m, other *Mark) bool {
	if w.left(other) {
		return other.Time < m.Time && m.Time <= other.Last
	}
	return compare(*other, *m) > 0
}

// putLeft puts a mark on the time line by which its thing has left its place. Several in a row are one.
func (f *Fault) putLeft(w *Evidence, m Mark) (first, changed bool) {
	m.Was = nil
	marks := slices.Clone(f.marks[w.index])
	at, _ := slices.BinarySearchFunc(marks, m, compare)
	place := func(o Mark) bool { return !w.left(&o) && f.rule.agree(o.Values, m.Values) }
	for i := range marks {
		o := &marks[i]
		switch {
		case !w.left(o):
			if i >= at && f.replaces(o, &m) {
				return false, false // it comes late
			}
		case o.Trust == m.Trust && f.rule.agree(o.Values, m.Values) && !slices.ContainsFunc(marks[min(i, at):max(i, at)], place):
			changed = o.merge(&m)
			slices.SortStableFunc(marks, compare)
			f.keep(w, marks)
			return false, changed
		}
	}
	f.keep(w, slices.Insert(marks, at, m))
	return len(marks) == 0, true
}

// leavePlaces has those places left whose time has come, and gives back those that the end of f keeps.
func (f *Fault) leavePlaces() {
	for _, w := range f.rule.Watches {
		for _, m := range f.marks[w.index] { // changed marks are others
			if !w.left(&m) {
				continue
			}
			stays, due := f.stays(&m)
			if due != 0 {
				f.set.time.Call(f, due)
			}
			moved := false
			if stays {
				moved = f.returnPlace(w, &m)
			} else {
				moved = f.leavePlace(w, &m)
			}
			if moved && f.verdict != nil {
				f.Changed()
			}
		}
	}
}

// stays reports whether the place that the thing of m has left is still told, and until when, 0 for as long as f is as it is.
// What was left before f began is not.
func (f *Fault) stays(m *Mark) (stays bool, until int64) {
	v := f.verdict
	switch {
	case v == nil || m.Time <= f.onset(v.best.trust):
		return false, 0
	case v.resolved != 0:
		return m.Time <= v.resolved && v.resolved <= m.Time+leaves, 0
	case m.Time+leaves <= f.set.time.Now():
		return false, 0
	}
	return true, m.Time + leaves
}

// leavePlace takes away where the thing of m was before, and reports whether that was told.
func (f *Fault) leavePlace(w *Evidence, m *Mark) bool {
	marks := f.marks[w.index]
	at := find(marks, m)
	was := slices.IndexFunc(marks[:at], func(o Mark) bool { return !w.left(&o) && f.replaces(m, &o) })
	if was < 0 {
		return false
	}
	marks = slices.Clone(marks)
	before := marks[was]
	marks[at].Was, marks[at].size = &before, 0
	f.keep(w, slices.Delete(marks, was, was+1))
	return true
}

// returnPlace gives back what leavePlace took.
func (t *trail) returnPlace(w *Evidence, m *Mark) bool {
	if m.Was == nil {
		return false
	}
	marks := slices.Clone(t.marks[w.index])
	at := find(marks, m)
	marks[at].Was, marks[at].size = nil, 0
	at, _ = slices.BinarySearchFunc(marks, *m.Was, compare)
	t.keep(w, slices.Insert(marks, at, *m.Was))
	return true
}

// returnPlaces gives back all.
func (t *trail) returnPlaces() {
	for _, w := range t.rule.Watches {
		for _, m := range t.marks[w.index] {
			t.returnPlace(w, &m)
		}
	}
}
