package fault

import (
	"container/list"
	"slices"
)

// recents are marks of evidence that joins faults, kept while a fault that they
// belong to may still begin: its record may be late, or come after them.
type recents struct {
	by    map[joinKey][]*recentMark // oldest first
	order list.List                 // of *recentMark, in order of arrival
}

type recentMark struct {
	key   joinKey
	w     *Evidence
	mark  Mark
	until int64
}

func (r *recents) len() int { return r.order.Len() }

func (r *recents) put(one *recentMark) {
	r.by[one.key] = append(r.by[one.key], one)
	r.order.PushBack(one)
}

func (r *recents) oldest() *recentMark { return r.order.Front().Value.(*recentMark) }

func (r *recents) removeOldest() {
	one := r.order.Remove(r.order.Front()).(*recentMark)
	left := r.by[one.key][1:] // of a key too, the oldest is the first
	if len(left) == 0 {
		delete(r.by, one.key)
	} else {
		r.by[one.key] = left
	}
}

// remember keeps a mark for faults that begin later.
func (s *Set) remember(key joinKey, w *Evidence, m Mark) {
	keep := s.time.Lateness()
	if !w.Resolves && w.Follows == nil {
		keep += int64(w.Rule.Within)
	}
	s.keepRecent(&recentMark{key: key, w: w, mark: m, until: max(m.Last, m.Overdue) + keep})
}

// giveBack keeps a mark that left its fault for as long as a record may be late:
// the finding that led to it may return.
func (s *Set) giveBack(w *Evidence, m Mark) {
	t, ok := Tuple(m.Values, w.Match)
	key := w.joinKey(t)
	there := func(o *recentMark) bool { return o.until >= s.time.Now() && o.w == w && o.mark.same(&m) }
	if !ok || slices.ContainsFunc(s.recent.by[key], there) {
		return
	}
	s.keepRecent(&recentMark{key: key, w: w, mark: m, until: s.time.Now() + s.time.Lateness()})
}

// keepRecent keeps one, and of all the newest.
func (s *Set) keepRecent(one *recentMark) {
	s.recent.put(one)
	if s.recent.len() > s.opts.Recent {
		s.stats.EvictedRecent++
		s.recent.removeOldest()
	}
}

// waitingFor returns the recent marks that one of keys leads to.
func (s *Set) waitingFor(keys []joinKey) []*recentMark {
	var waiting []*recentMark
	for _, key := range keys {
		marks := s.recent.by[key]
		for _, r := range marks[max(0, len(marks)-s.opts.FanOut):] {
			if r.until >= s.time.Now() { // others are only there because an older one stays longer
				waiting = append(waiting, r)
			}
		}
	}
	return waiting
}

// Forget removes the marks that no fault can need any more, and reports whether
// there were any. It is called when event time has moved.
func (s *Set) Forget() bool {
	removed := false
	for s.recent.len() > 0 && s.recent.oldest().until < s.time.Now() {
		s.recent.removeOldest()
		removed = true
	}
	return removed
}
