package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What an incident asks of the verdict of a fault (incident.Verdict); trail.go has
// what its marks answer.

// ID of the verdict.
func (f *Fault) ID() string { return f.verdict.id }

// Pattern is the name of the rule.
func (f *Fault) Pattern() string { return f.rule.Name }

// PatternID is the id of the rule.
func (f *Fault) PatternID() int { return f.rule.ID }

// Onset is when the fault was first seen, as it was first given out.
func (f *Fault) Onset() int64 { return f.verdict.onset }

// Began is when what was seen began.
func (f *Fault) Began() int64 { return f.verdict.since }

// Resolved is when the fault cleared, 0 while it is open.
func (f *Fault) Resolved() int64 { return f.verdict.resolved }

// Withdrawn reports whether evidence refuted the verdict.
func (f *Fault) Withdrawn() bool { return f.verdict.withdrawn }

// Expired reports whether it is kept only for effects that show later.
func (f *Fault) Expired() bool { return f.past }

// Owner is whose room it takes.
func (f *Fault) Owner() []string { return timeline.Path(f.shelf(), f.owner) }

// Trust is the weakest trust of what its confidence rests on.
func (f *Fault) Trust() verdict.Trust { return f.verdict.best.trust }

// Parties says whose fault it is, by the marks that name it.
func (f *Fault) Parties() incident.Parties {
	var o incident.Parties
	for _, m := range f.lending {
		o.Add(f.rule.process(m.Values))
	}
	return o
}

// Accuses returns whose fault it is by the evidence until then that says so. A verdict is sure of it
// when it is full; a death is sure of who died.
func (f *Fault) Accuses(until int64) (c incident.Culprits, sure bool) {
	if f.verdict.best.confidence != verdict.Full && !f.rule.Terminal {
		return c, false
	}
	for i, w := range f.rule.Watches {
		if len(w.accuses) == 0 || !f.saw(w) {
			continue
		}
		for j := range f.marks[i] {
			if m := &f.marks[i][j]; !m.Gone && m.since() <= until && f.trusted(w, m, f.verdict.best.trust) {
				sure = true
				f.rule.accuse(&c, w.accuses, m)
			}
		}
	}
	return c, sure
}

// Full reports whether its confidence is full.
func (f *Fault) Full() bool { return f.verdict.best.confidence == verdict.Full }

// Names returns whom the evidence until then names. Where a rule says which ranks its evidence
// accuses, the others that it hits are those that wait.
func (f *Fault) Names(until int64) incident.Culprits {
	var c incident.Culprits
	fields := f.accusing()
	if fields == nil && until == math.MaxInt64 {
		c.Ranks = f.Ranks()
	}
	for _, m := range f.lending {
		if m.since() > until {
			continue
		}
		if fields == nil {
			c.Ranks = union(c.Ranks, f.rule.ranksOf(m))
		}
		f.rule.accuse(&c, fields, m)
	}
	return c
}

// accusing are the fields of the ranks that evidence accuses which was seen; where none was, those
// of all evidence that would.
func (f *Fault) accusing() (seen []int) {
	var all []int
	for _, w := range f.rule.Watches {
		if all = append(all, w.accuses...); len(w.accuses) > 0 && f.saw(w) {
			seen = append(seen, w.accuses...)
		}
	}
	if seen == nil {
		return all
	}
	return seen
}

// accuse adds what m names, and the ranks in these fields of it.
func (r *Rule) accuse(c *incident.Culprits, ranks []int, m *Mark) {
	c.Add(r.get(m.Values, "host"), r.get(m.Values, "pid"), r.get(m.Values, "gpu"))
	for _, at := range ranks {
		c.Ranks = union(c.Ranks, m.Lists[at])
		if rank, ok := ParseRank(m.Values[at]); ok {
			c.Ranks = union(c.Ranks, []int{rank})
		}
	}
}

// Saw reports whether that evidence held in what was seen. That a fault began in its own job is
// said of the thing that it names.
func (f *Fault) Saw(evidence int) bool {
	w := f.rule.Watches[evidence]
	return f.holds(w, math.MinInt64, math.MaxInt64, f.verdict.best.trust) && (!slices.Contains(f.rule.Itself, w.Name) || f.ofLead(w))
}

// SeenBetween reports whether one of these pieces of evidence, or of all where there are none,
// was seen between two moments.
func (f *Fault) SeenBetween(evidence []int, from, to int64) bool {
	for w, m := range f.lending {
		if (len(evidence) == 0 || slices.Contains(evidence, w.index)) && m.Time <= to && m.Last >= from {
			return true
		}
	}
	return false
}

// Ranks returns the ranks on its marks.
func (f *Fault) Ranks() []int {
	ranks := f.ranksOf(f.verdict.best.trust)
	for w, m := range f.lending {
		if w.conditional() {
			ranks = union(ranks, f.rule.ranksOf(m))
		}
	}
	return ranks
}

// RanksOf returns the ranks on its marks that can be of job, all where none is named.
func (f *Fault) RanksOf(job incident.Job) (ranks []int) {
	mixed := false
	for _, m := range f.lending {
		if of := f.rule.process(m.Values).Job; job.ID != "" && of.ID != "" && !of.Is(job) {
			mixed = true
		} else if job.ID != "" {
			ranks = union(ranks, f.rule.ranksOf(m))
		}
	}
	if !mixed { // those of marks that have left, too
		return f.Ranks()
	}
	return ranks
}

// RanksUntil returns the ranks of the marks until then; all is false when marks
// have left because of the cap.
func (f *Fault) RanksUntil(until int64) (ranks []int, all bool) {
	for _, m := range f.lending {
		if m.Time <= until {
			ranks = union(ranks, f.rule.ranksOf(m))
		}
	}
	return ranks, !f.short()
}

// Lists reports whether a mark has one of the ranks in one of these fields.
func (f *Fault) Lists(fields, ranks []int) bool {
	for _, m := range f.lending {
		if slices.ContainsFunc(fields, func(field int) bool { return meet(m.Lists[field], ranks) }) {
			return true
		}
	}
	return false
}

// Connect enters f in the graph of incidents by the values on the marks that name it.
func (f *Fault) Connect() {
	if f.verdict.node.Entered() {
		f.connect(f.set.graph.MeetAgain)
	} else {
		f.connect(f.set.graph.Meet)
	}
}

func (f *Fault) connect(enter enter) {
	f.verdict.bore = f.bearing()
	for _, m := range f.lending {
		f.enter(m, enter)
	}
}

// meet enters a mark that came after the verdict. The cap may have it left already.
func (f *Fault) meet(w *Evidence, m *Mark) {
	if f.bears(w) && f.lends(w, m) {
		f.enter(m, f.set.graph.MeetAgain)
	}
}

// enter is how the graph takes a verdict under the values that one side of a link shares.
type enter func(*incident.Node, *incident.Link, string, incident.Role)

// enter does so by the values of m, where no mark before it named the same.
func (f *Fault) enter(m *Mark, enter enter) {
	node := f.verdict.node
	if node.Named(f.rule.name(m)) {
		return
	}
	f.rule.places(m, func(l *incident.Link, values string, role incident.Role) { enter(node, l, values, role) })
}

// places visits where m has a fault in the graph.
func (r *Rule) places(m *Mark, visit func(*incident.Link, string, incident.Role)) {
	for _, x := range r.causes {
		x.meets(m, func(values string) { visit(x.link, values, incident.Cause) })
	}
	for _, x := range r.effects {
		x.meets(m, func(values string) { visit(x.link, values, incident.Effect) })
	}
}

// Places visits where its marks have it in the graph, whether they count or not, and returns true where the
// cap took some.
func (f *Fault) Places(visit func(*incident.Link, string, incident.Role)) (short bool) {
	if !f.short() {
		return false
	}
	for i := range f.marks {
		for j := range f.marks[i] {
			f.rule.places(&f.marks[i][j], visit)
		}
	}
	return true
}

// short reports whether the cap took marks of f.
func (f *Fault) short() bool {
	return slices.ContainsFunc(f.folded, func(count float64) bool { return count != 0 })
}
