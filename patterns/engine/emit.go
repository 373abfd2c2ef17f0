package engine

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// flush moves what changed to the queue: root causes first, then by onset.
func (e *Engine) flush() {
	changed := e.dirty
	e.dirty = nil
	slices.SortStableFunc(changed, func(a, b *instance) int {
		return cmp.Or(
			cmp.Compare(role(a), role(b)), // root_cause sorts before symptom
			cmp.Compare(a.verdict.onset, b.verdict.onset),
			cmp.Compare(a.state.rule.ID, b.state.rule.ID),
			cmp.Compare(a.verdict.id, b.verdict.id),
		)
	})
	for _, inst := range changed {
		e.emit(inst)
	}
}

func role(inst *instance) verdict.Role {
	if inst.verdict.root == inst.verdict.id {
		return verdict.RootCause
	}
	return verdict.Symptom
}

// emit puts the next revision of inst into the queue, if it says anything new.
func (e *Engine) emit(inst *instance) {
	c := inst.verdict
	if !c.dirty {
		return
	}
	c.dirty, c.nextQuiet = false, 0
	v := inst.build()
	text, err := json.Marshal(v)
	if err != nil { // a verdict is plain data: this cannot happen
		e.stats.QueueDropped++
		return
	}
	hash := identifier(string(text))
	if hash == c.emitted {
		return
	}
	c.emitted = hash
	c.revision++
	v.Revision = c.revision
	if len(e.out) >= e.opts.Queue {
		e.stats.QueueDropped++
		return
	}
	e.stats.Verdicts++
	e.out = append(e.out, v)
}

// build writes down what is known of inst now, without its revision.
func (inst *instance) build() verdict.Verdict {
	r, c := inst.state.rule, inst.verdict
	v := verdict.Verdict{
		ID: c.id, IncidentID: identifier("incident", c.root), PatternID: r.ID, Pattern: r.Name,
		Role: role(inst), Status: verdict.Open, Confidence: cmp.Or(c.best.confidence, verdict.Partial),
		Onset: moment(inst.onset()), Updated: moment(max(inst.touched, c.resolved)),
		Culprit: map[string]string{}, BlastRadius: inst.blast(),
		Headline:    r.Headline.Pick(inst.value).Expand(inst.value),
		Remediation: r.Remedy.Pick(inst.value).Expand(inst.value),
		Severity:    inst.severity(),
		Evidence:    inst.evidence(), NotObserved: inst.notObserved(),
	}
	if v.Role == verdict.Symptom {
		v.RootCause = c.root
	}
	if c.resolved != 0 {
		at := moment(c.resolved)
		v.Status, v.Resolved = verdict.Resolved, &at
	}
	for _, name := range r.Culprit {
		if value, ok := inst.value(name); ok {
			v.Culprit[name] = value
		}
	}
	return v
}

// value is the value of a field: that of the leading mark, which is the earliest
// of the first evidence in the order of the file that holds, or else of the first
// mark that is of the same process and thing as the leading one. Evidence that
// has marks and does not hold (not as many as it takes) comes last.
func (inst *instance) value(name string) (string, bool) {
	at, ok := inst.state.at[name]
	if !ok {
		return "", false
	}
	var lead []string
	for _, holds := range [...]bool{true, false} {
		for i, w := range inst.state.watches {
			if inst.refutes(w.Name) || w.resolves || holds != (inst.verdict.best.seen&(1<<i) != 0) {
				continue
			}
			for j := range inst.marks[i] {
				values := inst.marks[i][j].Values
				if lead == nil {
					lead = values
				}
				if values[at] != "" && inst.state.agree(lead, values) {
					return values[at], true
				}
			}
		}
	}
	return "", false
}

// agree reports whether no field that identifies something differs.
func (s *ruleState) agree(a, b []string) bool {
	for _, at := range s.identity {
		if a[at] != b[at] && a[at] != "" && b[at] != "" {
			return false
		}
	}
	return true
}

func (inst *instance) severity() verdict.Severity {
	choice := inst.state.rule.Severity
	s := verdict.Severity(choice.Pick(inst.value).Expand(inst.value))
	switch s {
	case verdict.Info, verdict.Warning, verdict.Error, verdict.Critical:
		return s
	default: // taken from a record, and not a severity
		return verdict.Warning
	}
}

// blast returns the ranks hit by inst and by all it explains.
func (inst *instance) blast() []int {
	ranks := slices.Clone(inst.ranks)
	stack := slices.Clone(inst.verdict.children)
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = append(stack[:len(stack)-1], at.verdict.children...)
		ranks = append(ranks, at.ranks...)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// evidence lists what was seen, in order of time.
func (inst *instance) evidence() []verdict.Evidence {
	var list []verdict.Evidence
	for i, w := range inst.state.watches {
		if len(inst.marks[i]) > 0 && inst.shown(w) {
			list = append(list, inst.oneEvidence(w))
		}
	}
	if inst.verdict.closing != nil {
		list = append(list, *inst.verdict.closing)
	}
	slices.SortStableFunc(list, func(a, b verdict.Evidence) int { return a.Time.Compare(b.Time) })
	return list
}

// shown reports whether the marks of w are evidence: they need not hold, but
// what asks for more marks than there are, or for another kind before them, is
// none yet.
func (inst *instance) shown(w *watch) bool {
	switch {
	case w.resolves:
		return inst.verdict.resolved != 0
	case inst.refutes(w.Name):
		return inst.verdict.withdrawn
	case w.Follows != nil || w.Occurs.Count > 1 || w.Occurs.Values > 1:
		return inst.verdict.best.seen&(1<<w.index) != 0
	default:
		return true
	}
}

func (inst *instance) oneEvidence(w *watch) verdict.Evidence {
	marks := inst.marks[w.index]
	first, total := marks[0], inst.folded[w.index]
	last := first.Last
	for i := range marks {
		total += marks[i].Count
		last = max(last, marks[i].Last)
	}
	one := verdict.Evidence{Name: w.Name, Time: moment(first.Time), Count: toCount(total), Source: first.Source}
	if last > first.Time {
		one.Last = moment(last)
	}
	one.Shows = w.Shows.Expand(func(field string) (string, bool) {
		if at, ok := inst.state.at[field]; ok && first.Values[at] != "" {
			return first.Values[at], true
		}
		if field == rule.FieldCount {
			return strconv.FormatUint(one.Count, 10), true
		}
		return inst.value(field)
	})
	return one
}

// notObserved says what would have made the verdict surer.
func (inst *instance) notObserved() []string {
	var list []string
	for _, w := range inst.state.watches {
		if w.Absent.Text != "" && !w.resolves && inst.verdict.best.seen&(1<<w.index) == 0 {
			list = append(list, w.Absent.Expand(inst.value))
		}
	}
	return list
}

func toCount(f float64) uint64 {
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return uint64(math.Ceil(f))
}
