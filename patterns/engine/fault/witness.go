package fault

import (
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
)

// What an incident asks of the verdict of a fault (incident.Verdict).

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

// Ranks returns the ranks on its marks.
func (f *Fault) Ranks() []int { return f.ranks }

// Saw reports whether that evidence held in what was seen until then.
func (f *Fault) Saw(evidence int, until int64) bool {
	return f.holds(f.rule.Watches[evidence], math.MinInt64, until)
}

// RanksUntil returns the ranks of the marks until then; all is false when marks
// have left because of the cap.
func (f *Fault) RanksUntil(until int64) (ranks []int, all bool) {
	all = true
	for i := range f.marks {
		all = all && f.folded[i] == 0
		for j := range f.marks[i] {
			m := &f.marks[i][j]
			if m.Time > until || m.Gone || f.rule.Rank < 0 {
				continue
			}
			ranks = union(ranks, m.Ranks)
			if rank, ok := f.rule.rankOf(m); ok {
				ranks = union(ranks, []int{rank})
			}
		}
	}
	return ranks, all
}

// Lists reports whether one of the ranks is in one of these fields.
func (f *Fault) Lists(fields, ranks []int) bool {
	for i := range f.marks {
		for j := range f.marks[i] {
			for _, field := range fields {
				if meet(f.marks[i][j].Lists[field], ranks) {
					return true
				}
			}
		}
	}
	return false
}

// meet reports whether two sorted lists have a rank in common.
func meet(a, b []int) bool {
	return slices.ContainsFunc(b, func(rank int) bool {
		_, there := slices.BinarySearch(a, rank)
		return there
	})
}

// Connect enters f in the graph of incidents by the values on its marks.
func (f *Fault) Connect() { f.connect(f.set.graph.Meet) }

func (f *Fault) connect(enter func(*incident.Node, *incident.Link, string, incident.Role)) {
	node := f.verdict.node
	for i, w := range f.rule.Watches {
		if w.Resolves {
			break
		}
		for j := range f.marks[i] {
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
