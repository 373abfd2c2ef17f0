package fault

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// outbox holds what has to be given out: faults whose verdicts changed, in the
// order they did, and revisions of those that left the state since.
type outbox struct {
	changed  []*Fault
	verdicts []verdict.Verdict
}

// add enters f. Where there are more than most, those already given out leave:
// they were when they left the state.
func (o *outbox) add(f *Fault, most int) {
	o.changed = append(o.changed, f)
	if len(o.changed) > most {
		o.changed = slices.DeleteFunc(o.changed, func(f *Fault) bool { return !f.verdict.changed })
	}
}

// Verdicts returns the verdicts that are new or changed since the last call,
// one revision each, causes before symptoms.
func (s *Set) Verdicts() []verdict.Verdict {
	changed := s.out.changed
	s.out.changed = nil
	slices.SortStableFunc(changed, func(a, b *Fault) int {
		return cmp.Or(
			cmp.Compare(a.verdict.role(), b.verdict.role()), // root_cause sorts before symptom
			cmp.Compare(a.verdict.since, b.verdict.since),
			cmp.Compare(a.rule.ID, b.rule.ID),
			cmp.Compare(a.verdict.id, b.verdict.id),
		)
	})
	for _, f := range changed {
		s.emit(f)
	}
	verdicts := s.out.verdicts
	s.out.verdicts = nil
	return verdicts
}

// emit puts the next revision of f into the outbox, if it says anything new.
func (s *Set) emit(f *Fault) {
	c := f.verdict
	if !c.changed {
		return
	}
	due, waiting := c.due, c.nextQuiet
	c.changed, c.due, c.nextQuiet = false, false, 0
	if f.untold() || f.holdBack() || f.holdEnd() {
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
	c.emitted, c.told = hash, told
	s.give(v, c)
}

// give puts the next revision of a verdict into the outbox.
func (s *Set) give(v verdict.Verdict, c *conclusion) {
	c.revision++
	v.Revision = c.revision
	c.leads = v.Role == verdict.RootCause && v.Severity != verdict.Info
	if len(s.out.verdicts) >= s.opts.Queue {
		s.stats.QueueDropped++
		return
	}
	s.stats.Verdicts++
	s.out.verdicts = append(s.out.verdicts, v)
}
