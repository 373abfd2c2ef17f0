package fault

import "github.com/tracecoreai/tracecore/patterns/verdict"

// answers is what was asked of the marks of one fault since they changed. A death in a large job asks
// the same of the same marks hundreds of times: for its verdict, for what it shows, and for each incident.
// One rule remembers it of one fault at a time, so that it takes no memory for the others.
type answers struct {
	of     *trail
	holds  map[question]bool
	groups map[question]group // of no window
}

// question is what is asked: of this evidence, in this window, by marks of at least that trust.
type question struct {
	evidence   int
	least      verdict.Trust
	start, end int64
}

// mostAnswers bounds what is remembered. A death asks some hundred questions.
const mostAnswers = 4096

// answered returns what is remembered of t.
func (t *trail) answered() *answers {
	a := &t.rule.answers
	if a.of != t || len(a.holds) > mostAnswers {
		a.of = t
		clear(a.holds)
		clear(a.groups)
	}
	if a.holds == nil {
		a.holds, a.groups = map[question]bool{}, map[question]group{}
	}
	return a
}

// forget is called when marks of w have come, gone or changed, or how far they are trusted.
func (t *trail) forget(w *Evidence) {
	if a := &t.rule.answers; a.of == t {
		a.of = nil
	}
	if w.said {
		t.spoke = nil
	}
}

// keep has t keep these marks of w, sorted by time: all that changes them passes here.
func (t *trail) keep(w *Evidence, marks []Mark) {
	t.marks[w.index] = marks
	t.forget(w)
}
