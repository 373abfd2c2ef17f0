package fault

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// joins finds the faults that evidence joins, by the values of the fields that
// both have.
type joins struct {
	faults  map[joinKey][]*Fault
	fanOut  int
	limited uint64 // times that more faults matched than one record may join
}

// joinKey names the faults of a rule whose fields of one join set have these
// values.
type joinKey struct {
	rule   *Rule
	set    int // position in the rule's joins
	values string
}

func (w *Evidence) joinKey(values string) joinKey { return joinKey{w.Rule, w.join, values} }

// maxJoins bounds the keys by which one fault can be joined.
const maxJoins = 256

// enter makes f findable by the join sets whose fields values has, and returns
// the keys that are new.
func (j *joins) enter(f *Fault, values []string) []joinKey {
	var fresh []joinKey
	f.isOf(values)
	for set, positions := range f.rule.joins {
		t, ok := Tuple(values, positions)
		if !ok {
			continue
		}
		key := joinKey{f.rule, set, t}
		if slices.Contains(f.joinKeys, key) || len(f.joinKeys) >= maxJoins {
			continue
		}
		f.joinKeys = append(f.joinKeys, key)
		faults := append(j.faults[key], f)
		if len(faults) > j.fanOut {
			before := len(faults)
			faults = fairlru.Trim(faults, j.fanOut-j.fanOut/8, (*Fault).Owner)
			j.limited += uint64(before - len(faults))
		}
		j.faults[key] = faults
		fresh = append(fresh, key)
	}
	return fresh
}

// isOf notes of which job f is, and of which start of it.
func (f *Fault) isOf(values []string) {
	f.domain = cmp.Or(f.domain, f.rule.domain(values))
	f.run = cmp.Or(f.run, f.rule.runOf(values))
}

// leave makes f no longer findable.
func (j *joins) leave(f *Fault) {
	for _, key := range f.joinKeys {
		left := slices.DeleteFunc(j.faults[key], func(o *Fault) bool { return o == f })
		if len(left) == 0 {
			delete(j.faults, key)
		} else {
			j.faults[key] = left
		}
	}
	f.joinKeys = nil
}
