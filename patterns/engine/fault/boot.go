package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// A reboot ends what it cures. The event host.boot says that an agent began to watch a
// boot; any other proven record of a later boot says the same. An agent that is started
// again on the same boot says nothing new.

// laterBoot reports whether m is of a later boot than what was seen of the fault before it.
// Where that says no boot, the machine must have been booted since.
func (t *trail) laterBoot(m *Mark) bool {
	var newest *Mark
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
	if newest == nil {
		return false
	}
	was, is := t.rule.get(newest.Values, "boot"), t.rule.get(m.Values, "boot")
	if was == "" || is == "" {
		return m.Began > newest.Last
	}
	return was != is
}

// Boot is one boot of a machine, as a record says it.
type Boot struct {
	Host, ID string
	Time     int64
	Source   string
	Trust    verdict.Trust
}

// Ends reports whether a fault is open that a record of this boot of the host would end.
func (s *Set) Ends(host, boot string) bool {
	return slices.ContainsFunc(s.reboots, func(w *Evidence) bool {
		return slices.ContainsFunc(s.joins.faults[w.joinKey(host)], func(f *Fault) bool { return f.outlives(boot) })
	})
}

// outlives reports whether f stands, by evidence of another boot.
func (f *Fault) outlives(boot string) bool {
	if f.verdict == nil || f.verdict.resolved != 0 {
		return false
	}
	was := f.boot()
	return was != "" && was != boot
}

// Rebooted ends the faults that this boot ends.
func (s *Set) Rebooted(b Boot) {
	for _, w := range s.reboots {
		for _, f := range slices.Clone(s.joins.faults[w.joinKey(b.Host)]) {
			if !f.dead && f.outlives(b.ID) {
				f.add(w, w.Rule.boot(b))
				s.fit(f)
			}
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
	return Mark{Time: b.Time, Last: b.Time, Count: 1, Values: values, Source: b.Source, Trust: b.Trust}
}
