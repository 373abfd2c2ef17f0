package fault

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Open returns the newest revision of every verdict that was given out and is open, or led to what goes on:
// the oldest first.
func (s *Set) Open() []verdict.Verdict {
	var open []verdict.Verdict
	for _, r := range s.rules {
		for _, f := range r.faults {
			if c := f.verdict; c != nil && c.given() && (c.resolved == 0 && !c.withdrawn || f.goesOn() != "") {
				v := report{f}.write()
				v.Revision = c.revision
				open = append(open, v)
			}
		}
	}
	slices.SortFunc(open, func(a, b verdict.Verdict) int {
		return cmp.Or(a.Onset.Compare(b.Onset), cmp.Compare(a.ID, b.ID))
	})
	return open
}
