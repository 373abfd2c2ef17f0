package fault

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
)

// recents are marks of evidence that joins faults, kept while a fault that they
// belong to may still begin: its record may be late, or come after them.
type recents struct {
	by    map[recentKey][]*recentMark // oldest first
	order fairlru.List[*recentMark]   // in order of arrival
	seq   uint64
}

// recentKey is where marks of one evidence wait. Each has room of its own: one record may be a mark of fifty.
type recentKey struct {
	joinKey
	w *Evidence
}

type recentMark struct {
	recentKey
	seq     uint64 // in order of arrival
	mark    Mark
	until   int64
	owner   []string
	element *fairlru.Element[*recentMark]
}

func (r *recents) len() int { return r.order.Len() }

func (r *recents) put(one *recentMark) {
	r.seq++
	one.seq = r.seq
	r.by[one.recentKey] = append(r.by[one.recentKey], one)
	one.owner = timeline.Path(one.mark.Trust, one.w.Rule.Owner(one.mark.Values))
	one.element = r.order.Add(one, fairlru.Some, one.owner...)
	r.order.Resize(one.element, places(one.mark.bytes()))
}

func (r *recents) remove(one *recentMark) {
	r.order.Remove(one.element)
	left := r.by[one.recentKey]
	at := slices.Index(left, one) // mostly the first: of a key too, the oldest leaves first
	if len(left) == 1 {
		delete(r.by, one.recentKey)
	} else {
		r.by[one.recentKey] = slices.Delete(left, at, at+1)
	}
}

// thin leaves no more marks of one evidence under key than one fault is shown, and reports how many left.
func (r *recents) thin(key recentKey, fanOut int) uint64 {
	before := slices.Clone(r.by[key])
	stay := fairlru.Trim(slices.Clone(before), fanOut, func(one *recentMark) []string { return one.owner })
	for _, one := range before {
		if !slices.Contains(stay, one) {
			r.order.Remove(one.element)
		}
	}
	r.by[key] = stay
	return uint64(len(before) - len(stay))
}

// remember keeps a mark for faults that begin later.
func (s *Set) remember(key joinKey, w *Evidence, m Mark) {
	keep := s.time.Lateness()
	if !w.Resolves && w.Follows == nil {
		keep += int64(w.Rule.Within)
	}
	s.keepRecent(&recentMark{recentKey: recentKey{key, w}, mark: m, until: max(m.Last, m.Overdue) + keep})
}

// giveBack keeps a mark that left its fault for as long as a record may be late:
// the finding that led to it may return.
func (s *Set) giveBack(w *Evidence, m Mark) {
	t, ok := Tuple(m.Values, w.Match)
	key := w.joinKey(t)
	there := func(o *recentMark) bool { return o.until >= s.time.Now() && o.w == w && o.mark.same(&m) }
	if !ok || slices.ContainsFunc(s.recent.by[recentKey{key, w}], there) {
		return
	}
	s.keepRecent(&recentMark{recentKey: recentKey{key, w}, mark: m, until: s.time.Now() + s.time.Lateness()})
}

// keepRecent keeps one. What there is no room for leaves.
func (s *Set) keepRecent(one *recentMark) {
	s.recent.put(one)
	if len(s.recent.by[one.recentKey]) > 2*s.opts.FanOut {
		s.stats.FanOutLimited += s.recent.thin(one.recentKey, s.opts.FanOut)
	}
	for s.recent.order.Size() > s.opts.Recent && s.recent.len() > 0 {
		s.stats.EvictedRecent++
		victim, _ := s.recent.order.Victim()
		s.recent.remove(victim.Value)
	}
}

// waitingFor returns the recent marks that one of keys leads to.
func (s *Set) waitingFor(f *Fault, keys []joinKey) []*recentMark {
	var waiting []*recentMark
	for _, key := range keys {
		from := len(waiting)
		for _, w := range key.rule.Watches {
			if w.join != key.set {
				continue
			}
			of := recentKey{key, w}
			if len(s.recent.by[of]) > s.opts.FanOut {
				s.stats.FanOutLimited += s.recent.thin(of, s.opts.FanOut)
			}
			for _, r := range s.recent.by[of] {
				if r.until >= s.time.Now() && w.among(f, r.mark.Values) { // others are only there because an older one stays longer
					waiting = append(waiting, r)
				}
			}
		}
		slices.SortFunc(waiting[from:], func(a, b *recentMark) int { return cmp.Compare(a.seq, b.seq) })
	}
	return waiting
}

// Forget removes the marks that no fault can need any more, and reports whether
// there were any. It is called when event time has moved.
func (s *Set) Forget() bool {
	removed := false
	for s.recent.len() > 0 && s.recent.order.Oldest().until < s.time.Now() {
		s.recent.remove(s.recent.order.Oldest())
		removed = true
	}
	return removed
}
