package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// runOf is the start of a job that values are about, where that tells faults of the rule
// apart; "" where it does not, or is not known.
func (r *Rule) runOf(values []string) string {
	if !r.OfRun {
		return ""
	}
	return r.get(values, "run")
}

// Restart says that a job was started again.
type Restart struct {
	Job, Domain string
	Trust       verdict.Trust
	Run         string   // the start
	Older       []string // those whose place it took
	Stands      []string // those before it that go on
	At          int64
}

// ends reports whether a fault of that start, which was last seen then, is over.
func (r *Restart) ends(run string, touched int64) bool {
	if run == "" {
		return len(r.Stands) == 0 && touched < r.At
	}
	return slices.Contains(r.Older, run) || run != r.Run && touched < r.At && !slices.Contains(r.Stands, run)
}

// Restarted resolves what was open about the earlier starts of a job, and is trusted no more
// than who tells of the start. A fault of no start that is known is of an earlier one if
// all of it was seen before.
func (s *Set) Restarted(r Restart) {
	var ended []*Fault
	s.open.Each(func(f *Fault) {
		if f.rule.OfRun && r.ends(f.run, f.touched) && r.Trust >= f.stands() && f.ofJob(r) {
			ended = append(ended, f)
		}
	})
	for _, f := range ended {
		at := r.At
		if next := s.followed(r.Job, r.Domain, f.run, r.Trust); f.run != "" && next >= f.onset(f.named()) { // others may lie between
			at = next
		}
		f.restarted(at)
	}
}

// outrun resolves a verdict that comes when the next start of its job is known: its evidence
// was told late.
func (f *Fault) outrun() {
	if f.run == "" || f.dead || f.verdict == nil || f.verdict.resolved != 0 {
		return
	}
	for _, m := range f.lending {
		job := f.rule.get(m.Values, "job")
		if job == "" {
			continue
		}
		if at := f.set.followed(job, f.domain, f.run, f.stands()); at != 0 {
			f.restarted(at)
		}
		return
	}
}

// closedByRestart is the evidence of that.
const closedByRestart = "restarted"

// byRestart reports whether f is over because its job was started again.
func (f *Fault) byRestart() bool {
	return f.verdict.closing != nil && f.verdict.closing.Name == closedByRestart
}

// aftermath reports whether marks of f are what becomes of a start of its job that another
// has followed: ranks of it may die later than the first of the next begin. They are of the
// same fault.
func (f *Fault) aftermath() bool {
	return f.rule.Terminal && f.run != "" && f.byRestart()
}

// restarted resolves an open verdict, or one that another rank of the new start has ended,
// which was told of before but began later.
func (f *Fault) restarted(at int64) {
	switch v := f.verdict; {
	case f.onset(f.named()) > at: // it is of a start that goes on beside the next one
		return
	case v.resolved != 0 && (!f.byRestart() || v.resolved <= at):
		return
	}
	f.resolve(at, closed(closedByRestart, at, "the job was started again"))
}

// ofJob reports whether evidence of f names the job that was started again.
func (f *Fault) ofJob(r Restart) bool {
	if f.domain != "" && r.Domain != "" && f.domain != r.Domain {
		return false
	}
	for _, m := range f.lending {
		if f.rule.get(m.Values, "job") == r.Job {
			return true
		}
	}
	return false
}
