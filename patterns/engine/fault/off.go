package fault

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// SwitchOff ends the open verdicts of these rules, and forgets their faults. What they
// explained stands by itself from then on: nothing says that its cause has cleared.
func (s *Set) SwitchOff(names []string) {
	var off []*Fault
	for _, list := range []*fairlru.List[*Fault]{&s.waiting, &s.open} {
		list.Each(func(f *Fault) {
			if slices.Contains(names, f.rule.Name) {
				off = append(off, f)
			}
		})
	}
	slices.SortFunc(off, func(a, b *Fault) int { return cmp.Compare(a.seq, b.seq) })
	for _, f := range off {
		if v := f.verdict; v != nil && v.resolved == 0 && !f.past {
			at := max(s.time.Now(), v.onset)
			v.withdrawn = true
			f.resolve(at, closed("switched_off", at, "the pattern was switched off"))
			s.graph.Reconsider(v.node)
		}
		f.drop()
	}
}
