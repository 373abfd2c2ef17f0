package fault

import (
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// A job is its id inside its domain, which the kernel tells. Two marks that both say one
// are of the same job only if it is the same; where one says none, its record is a claim
// at most, and its word is taken.

// findFields finds the fields that are read from the id of a job, and those that say how
// long something lasts.
func (r *Rule) findFields() {
	fields := r.AllFields()
	for _, e := range r.All() {
		fields = append(fields, e.Fields...)
	}
	for _, f := range fields {
		at, used := r.at[f.Name]
		if used && strings.Contains(f.Expr, rule.AttributeJob) {
			r.jobs[at] = true
		}
		if used && f.IsAge() {
			r.ages[at] = true
		}
	}
}

func (r *Rule) ofJob(positions []int) bool {
	return slices.ContainsFunc(positions, func(at int) bool { return r.jobs[at] })
}

func (r *Rule) domain(values []string) string { return r.get(values, "job_domain") }

// key is that of the fault which values begin.
func (w *Evidence) key(values []string) (string, bool) {
	t, ok := Tuple(values, w.Match)
	if domain := w.Rule.domain(values); w.OfJob && domain != "" {
		t += "\x00" + domain
	}
	if run := w.Rule.runOf(values); run != "" {
		t += "\x00run " + run
	}
	return t, ok
}

// among reports whether a mark of w can be of the job and of a process of f.
func (w *Evidence) among(f *Fault, values []string) bool {
	if run := w.Rule.runOf(values); run != "" && f.run != "" && run != f.run {
		return false
	}
	if !w.ofOneProcess(f, values) {
		return false
	}
	domain := w.Rule.domain(values)
	return !w.OfJob || domain == "" || f.domain == "" || domain == f.domain
}
