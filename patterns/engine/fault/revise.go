package fault

import "slices"

// putFinding puts a finding on the time line, or in the place at of the one it
// replaces. One that is taken back before anyone was told leaves no trace.
func (f *Fault) putFinding(w *Evidence, at int, m Mark) (first, changed bool) {
	marks := f.marks[w.index]
	if at < 0 {
		if m.Gone || m.Count <= 0 {
			return false, false
		}
		marks = append(marks, m)
		slices.SortStableFunc(marks, compare)
		f.keep(w, marks)
		return true, true
	}
	old := marks[at]
	news := old.says(&m)
	if !news && old.Last == m.Last {
		return false, false
	}
	f.revised = f.revised || news
	if m.Count <= 0 || m.Gone && f.verdict == nil {
		f.revised = true
		f.keep(w, slices.Delete(marks, at, at+1))
		return false, true
	}
	if m.Gone { // what it had shown stays to be read
		m.Values, m.Ranks, m.Lists, m.Members, m.size = old.Values, old.Ranks, old.Lists, old.Members, 0
	}
	marks[at] = m
	slices.SortStableFunc(marks, compare)
	f.keep(w, marks)
	return news, true
}

// rejoin joins f by what its findings say now: evidence that only an earlier
// finding led to leaves, the recent marks that fit now are returned.
func (f *Fault) rejoin() []*recentMark {
	s := f.set
	s.joins.leave(f)
	f.returnPlaces()
	var waiting []*recentMark
	for i, w := range f.rule.Watches {
		for j := range f.marks[i] {
			if w.join < 0 {
				waiting = append(waiting, s.waitingFor(f, s.joins.enter(f, f.marks[i][j].Values))...)
			}
		}
	}
	for i, w := range f.rule.Watches {
		f.keep(w, slices.DeleteFunc(f.marks[i], func(m Mark) bool {
			leaves := !f.joined(w, &m)
			if leaves {
				s.giveBack(w, m)
			}
			return leaves
		}))
	}
	f.relearn()
	return waiting
}

// joined reports whether m still belongs to f.
func (f *Fault) joined(w *Evidence, m *Mark) bool {
	if w.join < 0 {
		return true
	}
	t, ok := Tuple(m.Values, w.Match)
	return ok && slices.Contains(f.joinKeys, w.joinKey(t)) && w.among(f, m.Values)
}

// reconsider gives a verdict whose finding was replaced what it now says, less
// than before too. When nothing is left that it rests on, it is withdrawn.
func (f *Fault) reconsider(best window) {
	v := f.verdict
	f.set.open.Touch(f.element, f.worth())
	v.best, v.since = best, f.since(best.trust)
	f.Changed()
	f.set.graph.Reconsider(v.node)
	if best.confidence == "" && !v.withdrawn && v.resolved == 0 {
		v.withdrawn = true
		f.resolve(f.touched, closed("withdrawn", f.touched, "what came later refutes it"))
	}
}
