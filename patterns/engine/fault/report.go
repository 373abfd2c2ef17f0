package fault

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// report writes down what is known of f now, without its revision.
func (f *Fault) report() verdict.Verdict {
	r, c := f.rule, f.verdict
	v := verdict.Verdict{
		ID: c.id, IncidentID: identifier("incident", c.node.Root()), PatternID: r.ID, Pattern: r.Name,
		Role: f.role(), Status: verdict.Open, Confidence: cmp.Or(c.best.confidence, verdict.Partial), Trust: c.best.trust,
		Onset: moment(f.onset(c.best.trust)), Updated: moment(max(f.touched, c.resolved)),
		Culprit: map[string]string{}, Boot: f.boot(), BlastRadius: f.blast(), Drill: f.drill(),
		Headline:    r.Headline.Pick(f.value).Expand(f.value),
		Remediation: r.Remedy.Pick(f.value).Expand(f.value),
		Severity:    f.severity(),
		Evidence:    f.evidence(), NotObserved: f.notObserved(),
	}
	if v.Role == verdict.Symptom {
		v.RootCause = c.node.Root()
	}
	if c.resolved != 0 {
		at := moment(c.resolved)
		v.Status, v.Resolved = verdict.Resolved, &at
	}
	for _, name := range named(r.Culprit) {
		if value, ok := f.value(name); ok {
			v.Culprit[name] = value
		}
	}
	return v
}

// named are the fields that a verdict names: where a job is one, also whose it is.
func named(culprit []string) []string {
	if slices.Contains(culprit, "job") {
		return append(slices.Clip(culprit), "job_domain")
	}
	return culprit
}

func (f *Fault) role() verdict.Role {
	if f.verdict.node.IsRoot() {
		return verdict.RootCause
	}
	return verdict.Symptom
}

// value is the value of a field: that of the leading mark, which is the earliest
// of the first evidence in the order of the file that holds, or else of the first
// mark that is of the same process and thing as the leading one. Evidence that
// has marks and does not hold (not as many as it takes) comes last. What is trusted less
// than the verdict names nothing.
func (f *Fault) value(name string) (string, bool) {
	at, ok := f.rule.at[name]
	if !ok {
		return "", false
	}
	var lead []string
	for _, holds := range [...]bool{true, false} {
		for i, w := range f.rule.Watches {
			if f.rule.refutes(w.Name) || w.Resolves || holds != f.saw(w) {
				continue
			}
			for j := range f.marks[i] {
				values := f.marks[i][j].Values
				if !f.trusted(w, &f.marks[i][j], f.verdict.best.trust) {
					continue
				}
				if lead == nil {
					lead = values
				}
				if values[at] != "" && f.rule.agree(lead, values) {
					return values[at], true
				}
			}
		}
	}
	return "", false
}

// boot is the boot of the machine that the verdict names, in which the newest evidence
// of it was seen. A fault of an earlier boot that is seen again is one of this boot.
func (f *Fault) boot() string {
	host, _ := f.value("host")
	boot, newest := "", int64(math.MinInt64)
	for i, w := range f.rule.Watches {
		for j := range f.marks[i] {
			m := &f.marks[i][j]
			if in := f.rule.get(m.Values, "boot"); in != "" && m.Last >= newest && f.rule.get(m.Values, "host") == host &&
				!w.Resolves && !f.rule.refutes(w.Name) && f.trusted(w, m, f.verdict.best.trust) {
				boot, newest = in, m.Last
			}
		}
	}
	return boot
}

// saw reports whether w holds in the window of the verdict.
func (f *Fault) saw(w *Evidence) bool { return f.verdict.best.seen&(1<<w.index) != 0 }

func (f *Fault) severity() verdict.Severity {
	choice := f.rule.Severity
	s := verdict.Severity(choice.Pick(f.value).Expand(f.value))
	switch s {
	case verdict.Info, verdict.Warning, verdict.Error, verdict.Critical:
		return s
	default: // taken from a record, and not a severity
		return verdict.Warning
	}
}

// blast returns the ranks hit by f and by all it explains.
func (f *Fault) blast() []int {
	ranks := slices.Clone(f.Ranks())
	f.verdict.node.Explained(func(v incident.Verdict) { ranks = append(ranks, v.Ranks()...) })
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// evidence lists what was seen, in order of time.
func (f *Fault) evidence() []verdict.Evidence {
	var list []verdict.Evidence
	for _, w := range f.rule.Watches {
		if marks := f.told(w); len(marks) > 0 && f.shown(w) {
			list = append(list, f.oneEvidence(w, marks))
		}
	}
	if f.verdict.closing != nil {
		closing := *f.verdict.closing
		closing.Trust = f.verdict.best.trust
		list = append(list, closing)
	}
	slices.SortStableFunc(list, func(a, b verdict.Evidence) int { return a.Time.Compare(b.Time) })
	return list
}

// shown reports whether the marks of w are evidence: they need not hold, but
// what asks for more marks than there are, or for another kind before them, is
// none yet.
func (f *Fault) shown(w *Evidence) bool {
	switch {
	case w.Resolves:
		return f.verdict.resolved != 0
	case f.rule.refutes(w.Name):
		return f.verdict.withdrawn
	case w.Follows != nil || w.Occurs.Count > 1 || w.Occurs.Values > 1:
		return f.saw(w)
	default:
		return true
	}
}

// told returns the marks of w that are trusted as much as what they speak for or against.
// Where none is, evidence tells of the others: a detail, which says of itself that it is.
func (f *Fault) told(w *Evidence) []Mark {
	least, decides := f.verdict.best.trust, w.Resolves || f.rule.refutes(w.Name)
	if decides {
		least = f.verdict.best.stands
	}
	weaker := func(m Mark) bool { return !f.trusted(w, &m, least) }
	marks := f.marks[w.index]
	if !slices.ContainsFunc(marks, weaker) {
		return marks
	}
	trusted := slices.DeleteFunc(slices.Clone(marks), weaker)
	if len(trusted) == 0 && !decides {
		return marks
	}
	return trusted
}

func (f *Fault) oneEvidence(w *Evidence, marks []Mark) verdict.Evidence {
	first, total := marks[0], f.folded[w.index]
	last, trust := first.Last, first.Trust
	for i := range marks {
		total += marks[i].Count
		last, trust = max(last, marks[i].Last), min(trust, f.trust(w, &marks[i]))
	}
	one := verdict.Evidence{Name: w.Name, Time: moment(first.Time), Count: toCount(total), Source: first.Source, Trust: trust}
	if last > first.Time {
		one.Last = moment(last)
	}
	one.Shows = w.Shows.Expand(func(field string) (string, bool) {
		if at, ok := f.rule.at[field]; ok && first.Values[at] != "" {
			return first.Values[at], true
		}
		if field == rule.FieldCount {
			return strconv.FormatUint(one.Count, 10), true
		}
		return f.value(field)
	})
	return one
}

// notObserved says what would have made the verdict surer.
func (f *Fault) notObserved() []string {
	var list []string
	for _, w := range f.rule.Watches {
		if w.Absent.Text != "" && !w.Resolves && !f.saw(w) && f.verdict.best.short&(1<<w.index) == 0 {
			list = append(list, w.Absent.Expand(f.value))
		}
	}
	if c := &f.verdict.best; c.short != 0 {
		list = append(list, unproven(c.doubted, f.rule.namesOf(c.short)))
	}
	return list
}

// unproven says why evidence does not make a verdict surer.
func unproven(trust verdict.Trust, names []string) string {
	who := "nothing shows that the kernel or a driver said it, a process can"
	if trust == verdict.Foreign {
		who = "it came over the network from somebody who is not an agent"
	}
	return "proof of " + strings.Join(names, ", ") + ": " + who
}

func toCount(f float64) uint64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return uint64(math.Ceil(f))
}
