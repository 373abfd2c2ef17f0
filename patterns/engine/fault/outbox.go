package fault

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// outbox holds what has to be given out: faults whose verdicts changed, in the order they did, and revisions that are
// written already, as something they tell of has left the state since.
type outbox struct {
	changed   []*Fault
	revisions map[string][]verdict.Verdict // by the id of their verdict
	waiting   int                          // so many of these
}

// add enters f. Where there are more than most, those already given out leave:
// they were when they left the state.
func (o *outbox) add(f *Fault, most int) {
	o.changed = append(o.changed, f)
	if len(o.changed) > most {
		o.changed = slices.DeleteFunc(o.changed, func(f *Fault) bool { return !f.verdict.changed })
	}
}

// Verdicts returns the verdicts that are new or changed since the last call, causes before symptoms: one revision
// each, and of what was open and is over before anybody was told, where that counts, one for each (openFirst).
func (s *Set) Verdicts() []verdict.Verdict {
	changed := s.out.changed
	s.out.changed = nil
	for _, f := range changed {
		s.emit(f)
	}
	verdicts := s.out.list()
	s.out = outbox{}
	s.stats.Verdicts += uint64(len(verdicts))
	return verdicts
}

// list returns the revisions that wait, causes before symptoms.
func (o *outbox) list() []verdict.Verdict {
	all := slices.Grow([]verdict.Verdict(nil), o.waiting)
	for _, revisions := range o.revisions {
		all = append(all, revisions...)
	}
	slices.SortFunc(all, func(a, b verdict.Verdict) int {
		return cmp.Or(
			cmp.Compare(a.Role, b.Role), // root_cause sorts before symptom
			a.Onset.Compare(b.Onset),
			cmp.Compare(a.PatternID, b.PatternID),
			cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Revision, b.Revision),
		)
	})
	return all
}

// put lets a revision wait, unless as many as most do.
func (o *outbox) put(v verdict.Verdict, most int) bool {
	if o.waiting >= most {
		return false
	}
	if o.revisions == nil {
		o.revisions = map[string][]verdict.Verdict{}
	}
	o.revisions[v.ID] = append(o.revisions[v.ID], v)
	o.waiting++
	return true
}

// takeBack forgets the revisions of a verdict that wait: they give way to the next one. Those from before it returned stay.
func (o *outbox) takeBack(c *conclusion) {
	waiting := o.revisions[c.id]
	stay := slices.DeleteFunc(slices.Clone(waiting), func(v verdict.Verdict) bool { return v.Revision > c.returns.Revision })
	if back := len(waiting) - len(stay); back > 0 {
		o.revisions[c.id] = stay
		o.waiting -= back
		c.revision -= back
		c.emitted, c.told = "", "" // nobody has read it
	}
}

// emit puts the next revision of f into the outbox, if it says anything new.
func (s *Set) emit(f *Fault) {
	c := f.verdict
	if !c.changed {
		return
	}
	due, waiting := c.due, c.nextQuiet
	c.changed, c.due, c.nextQuiet = false, false, 0
	if f.holdEnd() {
		return
	}
	s.out.takeBack(c)
	if f.untold() || f.holdBack() {
		return
	}
	v := report{f}.write()
	content := v
	if v.Status == verdict.Resolved { // what only comes later of it says nothing
		content.Updated = time.Time{}
	}
	text, err := json.Marshal(content)
	if err != nil { // a verdict is plain data: this cannot happen
		s.stats.QueueDropped++
		return
	}
	hash := identifier(string(text))
	if hash == c.emitted {
		return
	}
	told, err := news(v)
	if err != nil {
		s.stats.QueueDropped++
		return
	}
	if told == c.told && !due && !f.dead {
		c.nextQuiet = waiting
		f.Grew()
		return
	}
	if f.openFirst() {
		s.give(report{f}.beforeItsEnd(), c)
	}
	c.emitted, c.told = hash, told
	s.give(v, c)
}

// openFirst reports whether f is told as open, and then as over: its job was started again before anybody was told that
// a rank had died. An end alone wakes nobody.
func (f *Fault) openFirst() bool {
	return f.byRestart() && !f.verdict.given() && f.verdict.node.IsRoot()
}

// beforeItsEnd is the verdict as it stood before it was resolved.
func (f report) beforeItsEnd() verdict.Verdict {
	c := f.verdict
	resolved, closing := c.resolved, c.closing
	defer func() { c.resolved, c.closing = resolved, closing }()
	c.resolved, c.closing = 0, nil
	return f.write()
}

// give puts the next revision of a verdict into the outbox.
func (s *Set) give(v verdict.Verdict, c *conclusion) {
	c.revision++
	v.Revision = c.revision
	c.node.Told()
	c.leads = v.Role == verdict.RootCause && v.Severity != verdict.Info
	if !s.out.put(v, s.opts.Queue) {
		s.stats.QueueDropped++
	}
}
