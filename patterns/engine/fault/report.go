package fault

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// report is a fault that has a verdict, as it is told.
type report struct{ *Fault }

// write writes down what is known of it now, without the revision.
func (f report) write() verdict.Verdict {
	r, c := f.rule, f.verdict
	evidence := f.evidence()
	known, _ := c.node.Incident()
	missing := f.missing(evidence)
	v := verdict.Verdict{
		ID: c.id, IncidentID: identifier("incident", known), PatternID: r.ID, Pattern: r.Name,
		Role: c.role(), Status: verdict.Open, Confidence: cmp.Or(c.best.confidence, verdict.Partial), Trust: c.best.trust,
		Onset: moment(f.firstBegan()), Updated: moment(max(f.touched, c.resolved)),
		Culprit: map[string]string{}, Boot: f.boot(), BlastRadius: f.blast(), Drill: f.drill(), Stands: r.Stands,
		Headline:    f.headline(),
		Remediation: r.Remedy.Expand(f.known()),
		Steps:       r.Remedy.Steps(f.known()),
		Severity:    f.severity(),
		Evidence:    evidence, NotObserved: f.notObserved(missing), Missing: missing,
	}
	if edges, ok := f.value(verdict.WaitsField); ok {
		v.Waits = verdict.ReadWaits(edges)
	}
	v.Span = spanOf(&v)
	v.Late = slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Late && e.Trust >= v.Trust })
	if v.Role == verdict.Symptom {
		v.RootCause = c.node.Root()
	}
	if c.resolved != 0 {
		at := moment(c.resolved)
		v.Status, v.Resolved, v.GoesOn = verdict.Resolved, &at, f.goesOn()
		if over := max(c.ended, c.node.LastEnded()); over > c.resolved && v.GoesOn == "" && !c.withdrawn {
			at := moment(over)
			v.Over = &at
		}
	}
	for _, name := range named(r.Culprit) {
		if value, ok := f.value(name); ok {
			v.Culprit[name] = value
		}
	}
	if v.Culprit["job"] != "" {
		v.Run = f.run
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

// known is what templates of the verdict are filled with.
func (f report) known() rule.Known {
	return rule.Known{Holds: f.observed, Field: func(name string) (string, bool) {
		if _, defined := f.rule.at[name]; defined {
			return f.value(name)
		}
		return f.computed(f.leading(), name)
	}}
}

// leading is the evidence that names the culprit, nil for none.
func (f report) leading() *Evidence {
	for _, w := range f.rule.Watches {
		if !f.rule.refutes(w.Name) && !w.Resolves && len(f.marks[w.index]) > 0 && f.saw(w) {
			return w
		}
	}
	return nil
}

// computed is the value of a field that no record has.
func (f report) computed(w *Evidence, name string) (string, bool) {
	if w == nil || len(w.By) == 0 || name != rule.FieldCount && name != rule.FieldSpan && name != rule.FieldLead {
		return "", false
	}
	g := f.group(w, f.verdict.best.trust)
	whole := f.folded[w.index] == 0 // else the last ones are not known any more
	switch name {
	case rule.FieldCount:
		return strconv.Itoa(g.things), whole
	case rule.FieldSpan:
		if !whole {
			return w.Occurs.Within.String(), true
		}
		return apart(g.last - g.first), true
	case rule.FieldLead:
		return apart(g.second - g.first), g.things > 1
	}
	return "", false
}

// apart is a short time in words.
func apart(d int64) string {
	return max(time.Duration(d).Round(time.Millisecond), time.Millisecond).String()
}

// observed reports whether the evidence of that name was seen, of the thing that the verdict
// names, or that the verdict is full.
func (f report) observed(name string) bool {
	w := f.rule.watch(name)
	return w != nil && f.saw(w) && f.ofLead(w) || name == rule.Full && f.verdict.best.confidence == verdict.Full
}

// headline says of a verdict that has returned that it does.
func (f report) headline() string {
	text := f.rule.Headline.Expand(f.known())
	if f.verdict.returns.First != 0 {
		text += "; this comes and goes"
	}
	return text
}

func (f report) severity() verdict.Severity {
	s := verdict.Severity(f.rule.Severity.Expand(f.known()))
	switch s {
	case verdict.Info, verdict.Warning, verdict.Error, verdict.Critical:
		return s
	default: // taken from a record, and not a severity
		return verdict.Warning
	}
}

// goesOn is how bad that is which f led to and which is not over, "" for nothing. What was refuted led to nothing,
// and of what leaves the state nothing more is told.
func (f *Fault) goesOn() verdict.Severity {
	if v := f.verdict; f.dead || v.resolved == 0 || v.withdrawn {
		return ""
	}
	return f.verdict.node.GoesOn()
}

// blast returns the ranks hit by f and by all it explains. Rank 7 of another job is another one: where
// the verdict names a job, they are of it.
func (f report) blast() []int {
	var job incident.Job
	if slices.Contains(f.rule.Culprit, "job") {
		job.ID, _ = f.value("job")
		job.Domain, _ = f.value("job_domain")
	}
	ranks := slices.Clone(witness(f).RanksOf(job))
	f.verdict.node.Explained(func(v incident.Verdict) { ranks = append(ranks, v.RanksOf(job)...) })
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// evidence lists what was seen, in order of time.
func (f report) evidence() []verdict.Evidence {
	list := f.verdict.before()
	for _, w := range f.rule.Watches {
		if marks := f.told(w); len(marks) > 0 && f.shown(w) {
			list = append(list, f.allEvidence(w, marks)...)
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
func (f report) shown(w *Evidence) bool {
	switch {
	case w.Shows.Text == "":
		return false
	case w.Resolves:
		return f.verdict.resolved != 0
	case f.rule.refutes(w.Name):
		return f.verdict.withdrawn
	case w.Follows != nil || w.Occurs.Count > 1 || w.Occurs.Values > 1 || w.depends():
		return f.saw(w)
	default:
		return true
	}
}

// told returns the marks of w that are trusted as much as what they speak for or against.
// Where none is, evidence tells of the others: a detail, which says of itself that it is.
func (f report) told(w *Evidence) []Mark {
	least, decides := f.verdict.best.trust, w.Resolves || f.rule.refutes(w.Name)
	if decides {
		least = f.verdict.best.stands
	}
	weaker := func(m Mark) bool { // or of no use: what resolves comes after
		return !f.trusted(w, &m, least) || w.Resolves && m.Time < f.verdict.onset
	}
	marks := f.marks[w.index]
	if w.conditional() && !decides && f.saw(w) {
		idle := func(m Mark) bool { return !f.counts(w, &m, least) || !f.reached(w, &m, least) }
		if counting := slices.DeleteFunc(slices.Clone(marks), idle); len(counting) > 0 {
			marks = counting
		}
	}
	if !slices.ContainsFunc(marks, weaker) {
		return marks
	}
	trusted := slices.DeleteFunc(slices.Clone(marks), weaker)
	if len(trusted) == 0 && !decides {
		return marks
	}
	return trusted
}

// mostKinds is how many lines one piece of evidence has where its marks tell of different things.
const mostKinds = 3

// likeThese shows what has no line of its own.
const likeThese = "others like these"

// allEvidence is what marks of w show: a line for each thing that they tell of, so that a count is
// of what its line says. What is beyond mostKinds, or left because of the cap, is counted by itself.
func (f report) allEvidence(w *Evidence, marks []Mark) []verdict.Evidence {
	if some := slices.DeleteFunc(slices.Clone(marks), func(m Mark) bool { return w.left(&m) }); len(some) > 0 {
		marks = some
	}
	kinds := f.kinds(w, marks)
	if len(kinds) == 1 {
		if one := f.oneEvidence(w, marks, f.folded[w.index]); one.Shows != "" || !w.Newest { // how it is now may be nothing to tell
			return []verdict.Evidence{one}
		}
		return nil
	}
	if f.folded[w.index] != 0 { // which of them stayed depends on the order in which they came
		one, rest := f.oneEvidence(w, marks[:1], 0), f.oneEvidence(w, marks, f.folded[w.index])
		rest.Shows, rest.Count = likeThese, rest.Count-min(rest.Count, one.Count)
		return []verdict.Evidence{one, rest}
	}
	var list []verdict.Evidence
	for i := range min(len(kinds), mostKinds) {
		if one := f.oneEvidence(w, kinds[i], 0); one.Shows != "" || !w.Newest {
			list = append(list, one)
		}
	}
	if len(kinds) > mostKinds {
		rest := f.oneEvidence(w, slices.Concat(kinds[mostKinds:]...), 0)
		rest.Shows = likeThese
		list = append(list, rest)
	}
	return list
}

// kinds are the marks by what w shows of them, in order of time. What sums them up, or says how long
// something lasts, tells none apart.
func (f report) kinds(w *Evidence, marks []Mark) [][]Mark {
	all := [][]Mark{marks}
	if len(marks) == 1 {
		return all
	}
	var fields []int
	for _, name := range w.Shows.Fields() {
		if at, ok := f.rule.at[name]; ok && !f.rule.ages[at] {
			fields = append(fields, at)
		} else if !ok {
			return all
		}
	}
	all = nil
	for i := range marks {
		alike := func(kind []Mark) bool {
			return !slices.ContainsFunc(fields, func(at int) bool { return kind[0].Values[at] != marks[i].Values[at] })
		}
		if at := slices.IndexFunc(all, alike); at >= 0 {
			all[at] = append(all[at], marks[i])
		} else {
			all = append(all, marks[i:i+1:i+1])
		}
	}
	return all
}

func (f report) oneEvidence(w *Evidence, marks []Mark, folded float64) verdict.Evidence {
	first, total := marks[0], folded
	last, began, trust := first.Last, first.since(), first.Trust
	for i := range marks {
		total += marks[i].Count
		last, began, trust = max(last, marks[i].Last), min(began, marks[i].since()), min(trust, f.trust(w, &marks[i]))
	}
	if w.countsRanks() { // a rank that is seen twice is one
		total = min(total, float64(max(1, len(witness(f).Ranks()))))
	}
	one := verdict.Evidence{Name: w.Name, Time: moment(first.Time), Count: toCount(total), Source: first.Source, Trust: trust, Late: first.Late}
	if last > first.Time {
		one.Last = moment(last)
	}
	if began < first.Time {
		one.Began = moment(began)
	}
	one.Spans = spansOf(marks)
	one.Shows = w.Shows.Expand(rule.Known{Holds: f.observed, Field: func(field string) (string, bool) {
		if at, ok := f.rule.at[field]; ok && first.Values[at] != "" {
			return f.newest(marks, at, first.Values[at]), true
		} else if before := f.followed(w, &first); ok && before != nil && before.Values[at] != "" {
			return before.Values[at], true
		}
		if field == rule.FieldCount {
			return strconv.FormatUint(one.Count, 10), true
		}
		return f.computed(w, field)
	}})
	return one
}

// notObserved says what would have made the verdict surer, or another.
func (f report) notObserved(missing []verdict.Missing) []string {
	var list []string
	for _, m := range missing {
		list = append(list, m.Text)
	}
	if c := &f.verdict.best; c.short != (held{}) {
		list = append(list, unproven(c.doubted, f.rule.namesOf(c.short)))
	}
	if host, _ := f.value("host"); len(f.others) > 0 {
		list = append(list, "which records of "+host+" are of this machine: another of that name sends, too, and this is boot "+f.boot()+"; give each its own")
	}
	return append(append(list, f.corrected()...), f.lost()...)
}

// missing is the evidence that would have made the verdict surer. What is shown is missing only
// where the confidence asks for more of it, or for more trust: it may be a detail that is trusted less.
func (f report) missing(shown []verdict.Evidence) []verdict.Missing {
	var list []verdict.Missing
	for _, w := range f.rule.Watches {
		detail := func(e verdict.Evidence) bool { return e.Name == w.Name && !w.decides }
		if w.Absent.Text != "" && !w.Resolves && !f.saw(w) && !f.verdict.best.short.has(w.index) && !slices.ContainsFunc(shown, detail) {
			if text := w.Absent.Expand(f.known()); text != "" { // all of it may be in brackets
				list = append(list, verdict.Missing{Name: w.Name, Text: text, Sources: slices.Concat(f.rule.Events(w.Evidence), w.Metrics)})
			}
		}
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
