package fault

import (
	"math"

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

// Onset is when the fault began, as it was first given out.
func (f *Fault) Onset() int64 { return f.verdict.onset }

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
	for i, w := range f.rule.Watches {
		if w.Resolves {
			break
		}
		for j := range f.marks[i] {
			if m := &f.marks[i][j]; !m.Gone && f.trusted(w, m, f.verdict.best.trust) {
				o.Add(f.rule.get(m.Values, "job"), f.rule.get(m.Values, "host"), f.rule.get(m.Values, "pid"))
			}
		}
	}
	return o
}

// Saw reports whether that evidence held in what was seen until then.
func (f *Fault) Saw(evidence int, until int64) bool {
	return f.holds(f.rule.Watches[evidence], math.MinInt64, until, f.verdict.best.trust)
}

// Ranks returns the ranks on its marks.
func (f *Fault) Ranks() []int { return f.ranksOf(f.verdict.best.trust) }

// RanksUntil returns the ranks of the marks until then; all is false when marks
// have left because of the cap.
func (f *Fault) RanksUntil(until int64) (ranks []int, all bool) {
	return f.ranksUntil(until, f.verdict.best.trust)
}

// Lists reports whether one of the ranks is in one of these fields.
func (f *Fault) Lists(fields, ranks []int) bool {
	return f.lists(fields, ranks, f.verdict.best.trust)
}

// Connect enters f in the graph of incidents by the values on the marks that name it.
func (f *Fault) Connect() { f.connect(f.set.graph.Meet) }

func (f *Fault) connect(enter func(*incident.Node, *incident.Link, string, incident.Role)) {
	node := f.verdict.node
	for i, w := range f.rule.Watches {
		if w.Resolves {
			break
		}
		for j := range f.marks[i] {
			if !f.trusted(w, &f.marks[i][j], f.verdict.best.trust) {
				continue
			}
			values := f.marks[i][j].Values
			for _, x := range f.rule.causes {
				if t, ok := Tuple(values, x.fields); ok {
					enter(node, x.link, t, incident.Cause)
				}
			}
			for _, x := range f.rule.effects {
				if t, ok := Tuple(values, x.fields); ok {
					enter(node, x.link, t, incident.Effect)
				}
			}
		}
	}
}
