package fault

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
)

// Restore replaces the state by a saved one. What belongs to a rule that no longer
// exists, or that tells its faults apart by another key, is dropped and counted.
func (s *Set) Restore(saved *State) {
	s.Reset()
	for _, v := range saved.Out {
		s.out.put(v, s.opts.Queue)
	}
	byID := map[string]*Fault{}
	for i := range saved.Faults {
		if f := s.restore(&saved.Faults[i]); f != nil && f.verdict != nil {
			byID[f.verdict.id] = f
		}
	}
	for i := range saved.Faults {
		if v := saved.Faults[i].Verdict; v != nil && byID[v.ID] != nil {
			byID[v.ID].restoreCause(v, byID[v.Parent])
			byID[v.ID].restorePlaces(v.Places)
		}
	}
	for i := range saved.Recent {
		s.restoreRecent(&saved.Recent[i])
	}
	s.index()
	for _, l := range saved.Lost {
		if l != nil && len(s.losses) < mostLosses {
			s.losses = append(s.losses, l)
		}
	}
	slices.SortFunc(s.losses, (*Loss).compare)
	for host, by := range saved.Clocks {
		s.Corrected(host, by)
	}
}

// restore adds one fault, nil where it has no place any more.
func (s *Set) restore(saved *Saved) *Fault {
	r := s.find(saved.Rule)
	if r != nil && !saved.fit(r) {
		s.stats.NotRestored++
		return nil
	}
	past := saved.Past && saved.Verdict != nil
	aside := saved.Aside && saved.Verdict != nil
	if r == nil || !past && !aside && r.faults[saved.Key] != nil || aside && r.aside[saved.Key] != nil {
		return nil
	}
	f := s.newFault(r, saved.Key, saved.Seq, r.ownerOf(saved))
	f.touched, f.overdue, f.after, f.past, f.aside, f.real, f.others = saved.Touched, saved.Overdue, saved.After, past, aside, saved.Real, saved.Others[:min(len(saved.Others), mostOthers)]
	for name, marks := range saved.Marks {
		w := r.watch(name)
		if w == nil || slices.ContainsFunc(marks, func(m Mark) bool { return !m.fits(r) }) {
			continue
		}
		f.keep(w, marks)
		f.folded[w.index] = saved.Folded[name]
	}
	f.relearn()
	f.ranks = saved.Ranks // those of marks that left, too
	switch {
	case aside:
		r.aside[saved.Key] = f
	case !past:
		r.faults[saved.Key] = f
	}
	s.seq = max(s.seq, saved.Seq)
	if saved.Verdict == nil {
		f.shelve()
	} else {
		f.restoreVerdict(saved.Verdict)
	}
	return f
}

func (f *Fault) restoreVerdict(v *savedVerdict) {
	c := &conclusion{
		id: v.ID, best: window{
			end: v.End, confidence: v.Confidence, seen: f.rule.heldOf(v.Seen), trust: v.Trust, stands: v.Stands, short: f.rule.heldOf(v.Short), doubted: v.Doubted,
		}, onset: v.Onset,
		revision: v.Revision, emitted: v.Emitted, told: v.Told, leads: v.Leads, due: v.Due, quietEvery: max(v.QuietEvery, firstQuiet), nextQuiet: v.NextQuiet, held: v.Held,
		resolved: v.Resolved, withdrawn: v.Withdrawn, ended: v.Ended, closing: v.Closing, returns: v.Before,
	}
	c.since = f.since(c.best.trust)
	f.verdict = c
	c.node = incident.NewNode(witness{f})
	f.shelve()
	if v.Changed {
		f.Changed()
	}
}

// restoreCause puts f back into its incident, under cause if that is known.
func (f *Fault) restoreCause(v *savedVerdict, cause *Fault) {
	if v.Incident == "" { // written before incidents had names
		v.Incident, v.Known = v.Root, v.Revision > 0
	}
	if cause == nil || v.On < 0 || v.On >= len(cause.rule.causes) {
		f.verdict.node.Restore(v.Root, v.Incident, v.Known, nil, nil)
		return
	}
	f.verdict.node.Restore(v.Root, v.Incident, v.Known, cause.verdict.node, cause.rule.causes[v.On].link)
}

func (s *Set) restoreRecent(saved *SavedRecent) {
	w := s.Find(saved.Rule, saved.Evidence)
	if w == nil || w.join < 0 {
		return
	}
	w.Rule.fit(saved.Fields, &saved.Mark)
	if len(saved.Mark.Values) != len(w.Rule.Names) {
		return
	}
	if t, ok := Tuple(saved.Mark.Values, w.Match); ok {
		s.recent.put(&recentMark{recentKey: recentKey{w.joinKey(t), w}, mark: saved.Mark, until: saved.Until})
	}
}

// index makes all faults findable, in the order they began.
func (s *Set) index() {
	var all []*Fault
	collect := func(f *Fault) { all = append(all, f) }
	s.waiting.Each(collect)
	s.open.Each(collect)
	slices.SortFunc(all, func(a, b *Fault) int { return cmp.Compare(a.seq, b.seq) })
	for _, f := range all {
		for i, w := range f.rule.Watches {
			for j := range f.marks[i] {
				switch {
				case w.join >= 0:
				case f.past, f.aside:
					f.isOf(f.marks[i][j].Values)
				default:
					s.joins.enter(f, f.marks[i][j].Values)
				}
			}
		}
		if f.verdict != nil {
			f.connect(s.graph.Return)
		}
		f.callAgain()
	}
}
