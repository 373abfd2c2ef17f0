package incident

import (
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// maxEnds bounds the places of one verdict in the graph: that of a hang has one for each of its
// hosts in each explanation by a link of theirs.
const maxEnds = 4096

// Graph finds the verdicts that one explanation may connect: those whose shared
// fields have the same values.
type Graph struct {
	// FanOutLimited counts verdicts that were left out because too many share the
	// same values.
	FanOutLimited uint64

	fanOut   int
	meetings map[meeting]*sides
}

// meeting is where the verdicts of one explanation with the same values meet.
type meeting struct {
	link   *Link
	values string
}

// sides are the verdicts that may explain, and those that may be explained.
type sides struct{ causes, effects []*Node }

// Role is the side on which a verdict meets others.
type Role bool

// A Cause may explain, an Effect may be explained.
const (
	Cause  Role = true
	Effect Role = false
)

// end is one place of a verdict in the graph.
type end struct {
	meeting
	role Role
}

// NewGraph makes an empty graph, in which at most fanOut verdicts of one side meet.
func NewGraph(fanOut int) *Graph {
	return &Graph{fanOut: fanOut, meetings: map[meeting]*sides{}}
}

// Meet enters n under these values of the shared fields of l, and looks for what
// it explains or what explains it.
func (g *Graph) Meet(n *Node, l *Link, values string, role Role) {
	for _, other := range g.enter(n, end{meeting{l, values}, role}) {
		g.pair(n, other, l, role)
	}
}

// MeetAgain is Meet where n has learned whom it names: those that it has met under these values
// are looked at anew, too.
func (g *Graph) MeetAgain(n *Node, l *Link, values string, role Role) {
	e := end{meeting{l, values}, role}
	g.enter(n, e)
	g.lookAgain(n, e)
}

// lookAgain looks at all that n meets in one place.
func (g *Graph) lookAgain(n *Node, e end) {
	s := g.meetings[e.meeting]
	if s == nil {
		return
	}
	for _, other := range s.facing(e.role) {
		g.pair(n, other, e.link, e.role)
	}
}

// pair looks whether n, on that side of l, and other are cause and effect.
func (g *Graph) pair(n, other *Node, l *Link, role Role) {
	if role == Cause {
		g.explain(n, other, l)
	} else {
		g.explain(other, n, l)
	}
}

// Return is Meet after a restart: who explains whom is known already.
func (g *Graph) Return(n *Node, l *Link, values string, role Role) {
	g.enter(n, end{meeting{l, values}, role})
}

// enter returns the verdicts that n meets now for the first time.
func (g *Graph) enter(n *Node, e end) []*Node {
	if _, there := n.has[e]; there || len(n.ends) >= maxEnds {
		return nil
	}
	if n.has == nil {
		n.has = map[end]struct{}{}
	}
	n.ends, n.has[e] = append(n.ends, e), struct{}{}
	s := g.meetings[e.meeting]
	if s == nil {
		s = &sides{}
		g.meetings[e.meeting] = s
	}
	if e.role == Cause {
		s.causes = g.limited(append(s.causes, n))
	} else {
		s.effects = g.limited(append(s.effects, n))
	}
	return s.facing(e.role)
}

// facing are the verdicts that one of that side meets.
func (s *sides) facing(role Role) []*Node {
	if role == Cause {
		return s.effects
	}
	return s.causes
}

// limited takes the verdicts beyond the fan-out from the owner that has most.
func (g *Graph) limited(nodes []*Node) []*Node {
	if len(nodes) <= g.fanOut {
		return nodes
	}
	stay := fairlru.Trim(nodes, g.fanOut-g.fanOut/8, func(n *Node) []string { return n.verdict.Owner() })
	g.FanOutLimited += uint64(len(nodes) - len(stay))
	return stay
}

// Leave takes n out of the graph and out of its incident.
func (g *Graph) Leave(n *Node) {
	n.release()
	g.forget(n)
}

// forget takes n out of where it may meet others.
func (g *Graph) forget(n *Node) {
	for _, e := range n.ends {
		s := g.meetings[e.meeting]
		if s == nil {
			continue
		}
		is := func(o *Node) bool { return o == n }
		s.causes = slices.DeleteFunc(s.causes, is)
		s.effects = slices.DeleteFunc(s.effects, is)
		if len(s.causes)+len(s.effects) == 0 {
			delete(g.meetings, e.meeting)
		}
	}
	n.ends, n.has, n.names = nil, nil, nil
}

// Refit meets others by what is known of n now, after it learned something: what it
// learned can refute an explanation.
func (g *Graph) Refit(n *Node) {
	stale := func(child *Node) bool {
		cause, l := child.Cause()
		return cause != nil && !l.stands(cause, child.verdict)
	}
	conditional := func(e end) bool {
		asked := e.link.When // evidence of n
		if e.role == Effect {
			asked = e.link.Except
		}
		return len(asked) > 0 || e.link.Near > 0 || e.link.Alone
	}
	if stale(n) || slices.ContainsFunc(n.children, stale) || slices.ContainsFunc(n.ends, conditional) {
		g.Relook(n)
		return
	}
	n.verdict.Connect()
}

// SeenAgain looks anew for what n explains where that depends on when n was seen.
func (g *Graph) SeenAgain(n *Node) {
	for _, e := range n.ends {
		if e.role == Cause && e.link.Near > 0 {
			g.lookAgain(n, e)
		}
	}
}

// Ended is called when the verdict of n was resolved. What began after that is not its
// effect, also when it was told before; what stays learns that its cause has cleared.
func (g *Graph) Ended(n *Node) {
	for _, child := range slices.Clone(n.children) {
		if child.verdict.Withdrawn() || inTime(n.verdict, child.verdict, child.via) {
			continue
		}
		child.Grew()
		child.Turned()
		child.detach()
		child.root = child.verdict.ID()
		child.verdict.Changed()
		child.reroot()
		g.meetAnew(child)
	}
	n.resolved()
	n.Turned()
}

// Reconsider looks anew for what n explains and what explains it, by the evidence that is left alone.
func (g *Graph) Reconsider(n *Node) { g.reconsider(n, nil) }

// Relook does so by what the cap took from the evidence, too.
func (g *Graph) Relook(n *Node) { g.reconsider(n, n.past()) }

// reconsider takes n out of where it is, and looks anew. What is withdrawn was told in its incident, and
// ends there.
func (g *Graph) reconsider(n *Node, past []end) {
	keeps := n.parent == nil || n.verdict.Withdrawn() // its cause, if it had one, has left the state and keeps it
	n.Grew()
	n.Turned()
	children := n.scatter()
	if !n.verdict.Withdrawn() {
		n.detach()
	}
	g.forget(n)
	for _, one := range append(children, n) {
		if one != n || !keeps {
			one.root = one.verdict.ID()
		}
		one.verdict.Changed()
		one.reroot()
	}
	g.connect(n, past)
	for _, child := range children {
		if child.parent == nil {
			g.meetAnew(child)
		}
	}
}

// meetAnew enters n anew where its evidence, and what the cap took from it, has it.
func (g *Graph) meetAnew(n *Node) {
	past := n.past()
	g.forget(n)
	g.connect(n, past)
}

// connect enters n in these places, which it had before, and by its evidence.
func (g *Graph) connect(n *Node, past []end) {
	for _, e := range past {
		g.Meet(n, e.link, e.values, e.role)
	}
	n.verdict.Connect()
}
