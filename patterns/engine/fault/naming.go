package fault

import (
	"cmp"
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What the verdict of a fault names: the values of its fields, by the marks that may name things.

// value is the value of a field, as the leading mark has it, or else the first mark of the same process and
// thing. The leading mark is the worst, where the rule says what is worse. Else it is the earliest of the first
// evidence that holds, in the order of the file.
//
// A process that was hit before a worse fault came is not named with that. Evidence that has marks and does not
// hold (not as many as it takes) comes last. What follows nothing names nothing; nor does what is trusted less
// than the verdict, unless it is quoted.
func (f *Fault) value(name string) (string, bool) {
	at, ok := f.rule.at[name]
	if !ok {
		return "", false
	}
	if f.hidden(at) {
		return "", false
	}
	var lead []string
	for w, m := range f.naming {
		if lead == nil {
			lead = m.Values
		}
		if m.Values[at] != "" && f.rule.agree(lead, m.Values) && !f.endedBefore(m) {
			return f.newest(f.marks[w.index], at, m.Values[at]), true
		}
	}
	return f.quoted(at, lead)
}

// inOrder yields the marks that name things in the order of the evidence.
func (f *Fault) inOrder(yield func(*Evidence, *Mark) bool) {
	for _, holds := range [...]bool{true, false} {
		for i, w := range f.rule.Watches {
			if f.rule.refutes(w.Name) || w.Resolves || holds != f.saw(w) || !holds && (w.depends() || w.Follows != nil) {
				continue
			}
			for j := range f.marks[i] {
				if m := &f.marks[i][j]; f.trusted(w, m, f.verdict.best.trust) && (!holds || f.reached(w, m, f.verdict.best.trust)) && (w.Follows == nil && w.unsaid == nil && w.over == nil || f.counts(w, m, f.verdict.best.trust)) && !yield(w, m) {
					return
				}
			}
		}
	}
}

// naming yields the marks that name things, the leading one first: the worst, where the rule
// says what is worse. What is told later of one fault may be worse than how it began.
func (f *Fault) naming(yield func(*Evidence, *Mark) bool) {
	if f.rule.Worst.By == "" {
		f.inOrder(yield)
		return
	}
	type named struct {
		w  *Evidence
		m  *Mark
		at int
	}
	var marks []named
	for w, m := range f.inOrder {
		marks = append(marks, named{w, m, f.rule.place(w, m)})
	}
	slices.SortStableFunc(marks, func(a, b named) int { return cmp.Compare(a.at, b.at) })
	for _, one := range marks {
		if !yield(one.w, one.m) {
			return
		}
	}
}

// quoted is what the thing on the leading mark said of itself last, as a process of its
// machine told it.
func (f *Fault) quoted(at int, lead []string) (string, bool) {
	for _, w := range f.rule.Watches {
		if lead == nil || !slices.Contains(w.quotes, at) || w.Follows != nil && !f.saw(w) {
			continue
		}
		if said := f.quotedFrom(w, at, lead); said != "" {
			return said, true
		}
	}
	return "", false
}

// quotedFrom is what that thing said last by this evidence, "" for nothing.
func (f *Fault) quotedFrom(w *Evidence, at int, lead []string) string {
	for j := len(f.marks[w.index]) - 1; j >= 0; j-- {
		m := &f.marks[w.index][j]
		other := func(field int) bool { return lead[field] == "" || lead[field] != m.Values[field] }
		if m.Values[at] != "" && f.trusted(w, m, verdict.Claimed) && !slices.ContainsFunc(w.Match, other) && f.rule.agree(lead, m.Values) {
			return m.Values[at]
		}
	}
	return ""
}

// newest is the value of a field that says how long something lasts, as the last of marks
// that is of the same thing tells it; of any other field the value that it has.
func (f *Fault) newest(marks []Mark, at int, value string) string {
	if !f.rule.ages[at] {
		return value
	}
	first := slices.IndexFunc(marks, func(m Mark) bool { return m.Values[at] == value })
	for _, m := range slices.Backward(marks) {
		if m.Values[at] != "" && m.Trust >= marks[first].Trust && f.rule.agree(marks[first].Values, m.Values) {
			return m.Values[at]
		}
	}
	return value
}

// hidden reports whether evidence holds that keeps this field from being named.
func (f *Fault) hidden(at int) bool {
	return slices.ContainsFunc(f.rule.Watches, func(w *Evidence) bool {
		return !w.Resolves && slices.Contains(w.hides, at) && f.saw(w)
	})
}

// ofLead reports whether w joined by what the leading mark names. What joined by the process
// of another rank says nothing of the one that is named, and what came before a worse fault
// says nothing of that.
func (f *Fault) ofLead(w *Evidence) bool {
	for _, lead := range f.naming {
		other := func(m Mark) bool {
			named, is := f.rule.process(lead.Values), f.rule.process(m.Values)
			if (w.OfProcess || w.OfMachine) && named.PID != "" && is.PID != "" && !named.Is(is) {
				return true
			}
			return slices.ContainsFunc(w.Match, func(field int) bool { return lead.Values[field] != "" && lead.Values[field] != m.Values[field] })
		}
		return slices.ContainsFunc(f.marks[w.index], func(m Mark) bool { return f.trusted(w, &m, f.verdict.best.trust) && !other(m) && f.ofWorst(w, &m) })
	}
	return true
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

// saw reports whether w holds in the window of the verdict. What must come first may turn
// out not to have.
func (f *Fault) saw(w *Evidence) bool {
	if w.depends() {
		return f.holds(w, math.MinInt64, math.MaxInt64, f.verdict.best.trust)
	}
	return f.verdict.best.seen.has(w.index)
}

// everSaw reports whether w holds in all that was seen. That a fault began in its own job is said of
// the thing that it names.
func (f *Fault) everSaw(w *Evidence) bool {
	return f.holds(w, math.MinInt64, math.MaxInt64, f.verdict.best.trust) && (!slices.Contains(f.rule.Itself, w.Name) || f.ofLead(w))
}
