package fault

import "github.com/tracecoreai/tracecore/patterns/engine/incident"

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
func (f *Fault) Owner() []string { return f.owner }

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
