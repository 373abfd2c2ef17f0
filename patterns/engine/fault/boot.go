package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// A reboot ends what it cures. The event host.boot says that an agent began to watch a
// boot; any other proven record of a later boot says the same. An agent that is started
// again on the same boot says nothing new.

// laterBoot reports whether m is of a later boot than what was seen of the fault before it.
// Where that says no boot, the machine must have been booted since.
func (t *trail) laterBoot(m *Mark) bool {
	newest := t.newestBefore(m)
	if newest == nil {
		return false
	}
	was, is := t.rule.get(newest.Values, "boot"), t.rule.get(m.Values, "boot")
	if was == "" || is == "" {
		return m.Began > newest.Last
	}
	return was != is && !m.beganBefore(newest)
}

// twin reports whether the boot of m is not that of what was seen of the fault before it, and began before that:
// two machines have one name.
func (t *trail) twin(m *Mark) bool {
	newest := t.newestBefore(m)
	if newest == nil || !m.beganBefore(newest) {
		return false
	}
	was, is := t.rule.get(newest.Values, "boot"), t.rule.get(m.Values, "boot")
	return was != "" && is != "" && was != is
}

// beganBefore reports whether the boot of m is known to have begun before seen, however far a clock was ahead.
func (m *Mark) beganBefore(seen *Mark) bool {
	return m.Began != 0 && m.Began <= seen.Last-int64(timeline.MaxAhead)
}

// mayEnd reports whether the boot of m may end f. Once another machine of that name is known, only a boot
// that says itself that it began later may; where there are as many as f can know, none.
func (f *Fault) mayEnd(m *Mark) bool {
	switch {
	case len(f.others) >= mostOthers, slices.Contains(f.others, f.rule.get(m.Values, "boot")):
		return false
	case len(f.others) > 0:
		newest := f.newestBefore(m)
		return newest != nil && m.Began > newest.Last
	default:
		return f.laterBoot(m)
	}
}

// newestBefore is what was last seen of the fault on the machine of m before m, nil for nothing.
func (t *trail) newestBefore(m *Mark) (newest *Mark) {
	for i, w := range t.rule.Watches {
		if w.Resolves || t.rule.refutes(w.Name) {
			continue
		}
		for j := range t.marks[i] {
			one := &t.marks[i][j]
			if t.rule.get(one.Values, "host") == t.rule.get(m.Values, "host") && one.Last < m.Time && (newest == nil || one.Last > newest.Last) {
				newest = one
			}
		}
	}
	return newest
}

// Boot is one boot of a machine, as a record says it.
type Boot struct {
	Host, ID string
	Time     int64
	Began    int64 // a process of it had begun by then, 0 where none is known
	Source   string
	Trust    verdict.Trust
}

// Ends reports whether a record of this boot of the host may end a fault, or say that another has not.
func (s *Set) Ends(host, boot string) bool {
	return slices.ContainsFunc(s.reboots, func(w *Evidence) bool {
		return slices.ContainsFunc(s.joins.faults[w.joinKey(host)], func(f *Fault) bool { return f.outlives(boot) || f.outlived(boot, math.MaxInt64) })
	})
}

// outlives reports whether f stands, by evidence of another boot.
func (f *Fault) outlives(boot string) bool {
	if f.verdict == nil || f.verdict.resolved != 0 {
		return false
	}
	was := f.boot()
	return was != "" && was != boot && !slices.Contains(f.others, boot)
}

// outlived reports whether a later boot ended f, and that of its evidence is heard of then: two machines
// have one name.
func (f *Fault) outlived(boot string, at int64) bool {
	return f.verdict != nil && f.verdict.resolved != 0 && f.boot() == boot && slices.ContainsFunc(f.rule.Watches, func(w *Evidence) bool {
		return w.Reboot && slices.ContainsFunc(f.marks[w.index], func(m Mark) bool { return f.rule.get(m.Values, "boot") != boot && m.Time < at })
	})
}

// mostOthers bounds the machines of one name that a fault knows of.
const mostOthers = 8

// ofAnother notes that this boot is of another machine, which has the name of that of f.
func (f *Fault) ofAnother(boot string) {
	if len(f.others) < mostOthers && !slices.Contains(f.others, boot) {
		f.others = append(f.others, boot)
		f.Changed()
	}
}

// standsYet takes back what boots of another machine of that name have ended.
func (f *Fault) standsYet(w *Evidence) {
	for _, m := range f.marks[w.index] {
		f.ofAnother(f.rule.get(m.Values, "boot"))
	}
	f.keep(w, nil)
	f.relearn()
	f.evaluate(math.MinInt64, brought{})
}

// Rebooted ends the faults that this boot ends.
func (s *Set) Rebooted(b Boot) {
	for _, w := range s.reboots {
		for _, f := range slices.Clone(s.joins.faults[w.joinKey(b.Host)]) {
			m := w.Rule.boot(b)
			switch {
			case f.dead:
				continue
			case f.outlived(b.ID, b.Time):
				f.standsYet(w)
			case f.outlives(b.ID) && f.twin(&m):
				f.ofAnother(b.ID)
			case f.outlives(b.ID) && len(f.others) == 0:
				f.add(w, m)
			}
			s.fit(f)
		}
	}
}

// boot is b as a mark.
func (r *Rule) boot(b Boot) Mark {
	values := make([]string, len(r.Names))
	for name, value := range map[string]string{"host": b.Host, "boot": b.ID} {
		if at, used := r.at[name]; used {
			values[at] = value
		}
	}
	return Mark{Time: b.Time, Last: b.Time, Began: b.Began, Count: 1, Values: values, Source: b.Source, Trust: b.Trust}
}
