package replay

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// mostVerdicts is how many verdicts wait to be shown. Beyond, those that have been
// quiet longest are shown; should they change later, they are shown again.
const mostVerdicts = 20_000

// ledger keeps the last revision of each verdict until it is shown.
type ledger struct {
	show    func([]verdict.Verdict) error
	entries map[string]*entry // by verdict id
	clock   uint64            // counts revisions
	count   int               // verdicts seen
}

type entry struct {
	verdict verdict.Verdict
	changed uint64
}

func (l *ledger) add(verdicts []verdict.Verdict) {
	if l.entries == nil {
		l.entries = map[string]*entry{}
	}
	for _, v := range verdicts {
		l.clock++
		if e := l.entries[v.ID]; e != nil {
			e.verdict, e.changed = v, l.clock
			continue
		}
		l.entries[v.ID] = &entry{v, l.clock}
		if v.Revision == 1 {
			l.count++
		}
	}
}

// flush shows verdicts when there are more than most: the quieter half, or all of
// them when most is 0.
func (l *ledger) flush(most int) error {
	if len(l.entries) <= most {
		return nil
	}
	list := make([]*entry, 0, len(l.entries))
	for _, e := range l.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.changed, b.changed) })
	if most > 0 {
		list = list[:len(list)/2]
	}
	verdicts := make([]verdict.Verdict, len(list))
	for i, e := range list {
		verdicts[i] = e.verdict
		delete(l.entries, e.verdict.ID)
	}
	return l.show(verdicts)
}
