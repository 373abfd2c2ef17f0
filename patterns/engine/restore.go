package engine

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Restore replaces the state by that of a snapshot. Faults of rules that no
// longer exist, or whose fields have changed, are dropped and counted.
func (e *Engine) Restore(snapshot []byte) error {
	var saved savedEngine
	if err := json.Unmarshal(snapshot, &saved); err != nil {
		return fmt.Errorf("read engine state: %w: remove the stored state to start empty", err)
	}
	if saved.Version != snapshotVersion {
		return fmt.Errorf("read engine state: version %d, this engine reads %d: remove the stored state to start empty", saved.Version, snapshotVersion)
	}
	e.clear()
	e.now, e.clock, e.out = min(saved.Now, maxTime), min(saved.Clock, maxTime), saved.Out
	parents := map[string]*instance{}
	for i := range saved.Faults {
		e.restoreFault(&saved.Faults[i], parents)
	}
	for i := range saved.Faults {
		e.restoreParent(&saved.Faults[i], parents)
	}
	for i := range saved.Series {
		e.restoreSeries(&saved.Series[i])
	}
	for i := range saved.Recent {
		e.restoreRecent(&saved.Recent[i])
	}
	e.indexInOrder()
	e.restoreDetectors(saved.Detectors)
	return nil
}

// restoreDetectors gives detectors their state back. One whose state cannot be
// read begins empty, counted: the others and all faults stay.
func (e *Engine) restoreDetectors(states map[string]json.RawMessage) {
	for _, d := range e.detections {
		state, ok := states[d.detector.Name]
		if !ok {
			continue
		}
		if d.algorithm.Restore(state) != nil {
			e.stats.NotRestored++
			d.reset(e)
		}
		if due := d.algorithm.Due(); due != 0 {
			e.schedule(d, max(due, e.now+1))
		}
	}
}

// ruleOf returns the rule called name, if it still has these fields.
func (e *Engine) ruleOf(name string, fields []string) *ruleState {
	s := e.byName[name]
	if s == nil || !slices.Equal(s.names, fields) {
		e.stats.NotRestored++
		return nil
	}
	return s
}

// watchOf returns the evidence called name.
func (s *ruleState) watchOf(name string) *watch {
	for _, w := range s.watches {
		if w.Name == name {
			return w
		}
	}
	return nil
}

func (e *Engine) restoreFault(f *savedFault, byID map[string]*instance) {
	s := e.ruleOf(f.Rule, f.Fields)
	past := f.Past && f.Verdict != nil
	if s == nil || !past && s.instances[f.Key] != nil {
		return
	}
	inst := &instance{
		state: s, key: f.Key, seq: f.Seq, marks: make([][]mark, len(s.watches)), folded: make([]float64, len(s.watches)),
		ranks: f.Ranks, touched: f.Touched, heard: f.Heard, after: f.After, past: past,
	}
	for name, marks := range f.Marks {
		w := s.watchOf(name)
		if w == nil || slices.ContainsFunc(marks, func(m mark) bool { return len(m.Values) != len(s.names) }) {
			continue
		}
		inst.marks[w.index], inst.folded[w.index] = marks, f.Folded[name]
		for i := range marks {
			inst.learn(&marks[i])
		}
	}
	if !past {
		s.instances[f.Key] = inst
	}
	e.seq = max(e.seq, f.Seq)
	if f.Verdict == nil {
		inst.element = e.waiting.add(inst)
		return
	}
	e.restoreVerdict(inst, f.Verdict)
	byID[f.Verdict.ID] = inst
}

func (e *Engine) restoreVerdict(inst *instance, v *savedVerdict) {
	c := &conclusion{
		id: v.ID, best: finding{end: v.End, confidence: v.Confidence}, onset: v.Onset,
		revision: v.Revision, emitted: v.Emitted, quietEvery: max(v.QuietEvery, firstQuiet), nextQuiet: v.NextQuiet,
		resolved: v.Resolved, withdrawn: v.Withdrawn, closing: v.Closing, root: v.Root,
	}
	for _, name := range v.Seen {
		c.best.seen |= inst.bit(name)
	}
	inst.verdict = c
	inst.element = e.open.add(inst)
	if v.Dirty {
		e.touchVerdict(inst)
	}
}

func (e *Engine) restoreParent(f *savedFault, byID map[string]*instance) {
	if f.Verdict == nil || f.Verdict.Parent == "" {
		return
	}
	inst, parent := byID[f.Verdict.ID], byID[f.Verdict.Parent]
	if inst == nil || parent == nil || f.Verdict.On < 0 || f.Verdict.On >= len(parent.state.causes) || parent.descendsFrom(inst) {
		return
	}
	inst.verdict.parent, inst.verdict.via = parent, parent.state.causes[f.Verdict.On]
	parent.verdict.children = append(parent.verdict.children, inst)
}

func (e *Engine) restoreSeries(f *savedSeries) {
	s := e.ruleOf(f.Rule, f.Fields)
	if s == nil {
		return
	}
	w := s.watchOf(f.Evidence)
	if w == nil || len(f.Values) != len(s.names) || !w.OnMetrics() && thingID(w, f.Values) != f.ID {
		e.stats.NotRestored++ // its rule follows something else now
		return
	}
	one := &series{
		w: w, id: f.ID, kind: f.Kind, points: f.Points, history: f.History,
		values: f.Values, source: f.Source, newest: f.Newest, stay: f.Stay,
	}
	e.keepSeries(seriesKey(w, f.ID), one)
	e.scheduleStay(one)
}

func (e *Engine) restoreRecent(f *savedRecent) {
	s := e.ruleOf(f.Rule, f.Fields)
	if s == nil {
		return
	}
	w := s.watchOf(f.Evidence)
	if w == nil || w.join < 0 || len(f.Mark.Values) != len(s.names) {
		return
	}
	if t, ok := tuple(f.Mark.Values, w.match); ok {
		e.recent.put(&recentMark{key: joinKey(s, w.join, t), w: w, mark: f.Mark, until: f.Until})
	}
}

// indexInOrder enters all faults into the indexes, in the order they began.
func (e *Engine) indexInOrder() {
	var all []*instance
	collect := func(inst *instance) { all = append(all, inst) }
	e.waiting.each(collect)
	e.open.each(collect)
	slices.SortFunc(all, func(a, b *instance) int { return compareInt(int64(a.seq), int64(b.seq)) })
	for _, inst := range all {
		for i, w := range inst.state.watches {
			for j := range inst.marks[i] {
				if w.join < 0 && !inst.past {
					e.index(inst, inst.marks[i][j].Values)
				}
			}
		}
		if inst.verdict != nil {
			e.connectQuietly(inst)
		}
		e.reschedule(inst)
	}
}
