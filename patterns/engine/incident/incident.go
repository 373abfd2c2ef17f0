// Package incident is what explains what: which open verdict is the cause of
// which, and so which of them is the root cause of its incident. It knows
// verdicts by a few questions and never looks at marks or records.
package incident

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Verdict is what an incident is made of, and what it must be able to answer.
type Verdict interface {
	ID() string
	Pattern() string
	PatternID() int
	Onset() int64    // when it was first seen, as it was first given out
	Began() int64    // when what was seen began: it may be seen only later
	Resolved() int64 // 0 while it is open
	Withdrawn() bool // resolved because evidence refuted it
	Expired() bool   // quiet, and kept only for effects that show later: nobody saw it end
	Owner() []string // whose room it takes
	Trust() verdict.Trust
	Full() bool // its confidence is full
	Sure() bool // it is full, or tells of a death, which is one however sure its cause
	Severity() verdict.Severity
	Leads() bool // it was last given out as the root cause of its incident, as a fault
	Parties() Parties
	// Accuses says whose fault it is, where it is sure, and Names whom its evidence names, sure
	// or not: by what it tells of until a moment.
	Accuses(until int64) (c Culprits, sure bool)
	Names(until int64) Culprits
	Domain() string // of its job, "" when not known
	// Run is the start of its job that it is of, "" when it is of none, or it is not known
	// which. Runs are those that its evidence is about: all is false where some of it names a
	// job and no start.
	Run() string
	Runs() (runs []string, all bool)
	// Together is when the later of two starts of its job began that are one job since, as ranks of one
	// began again beside those of the other; 0 where they are not.
	Together(one, other string) int64

	// Saw reports whether that evidence of it held in what was seen.
	Saw(evidence int) bool
	// SeenBetween reports whether one of these pieces of evidence, or of all where there are
	// none, was seen between two moments.
	SeenBetween(evidence []int, from, to int64) bool
	// RanksUntil returns the ranks seen until then; all is false when some that were
	// seen are no longer known.
	RanksUntil(until int64) (ranks []int, all bool)
	// Ranks returns all ranks that it hits.
	Ranks() []int
	// RanksOf returns those that can be of a job.
	RanksOf(job Job) []int
	// Lists reports whether one of these fields of it lists one of the ranks.
	Lists(fields, ranks []int) bool

	// Connect meets others by what is known of it now, on either side of its rule's
	// explanations.
	Connect()
	// Places visits where its evidence has it, whether that holds or not, and returns true where the cap
	// took some of it.
	Places(visit func(l *Link, values string, role Role)) (short bool)
	// Changed is called when its part in its incident is another.
	Changed()
	// Grew is called when the ranks hit by what it explains may be others.
	Grew()
	// CauseCleared is called when its cause was resolved.
	CauseCleared(cause Verdict)
}

// Link is one explanation that a rule gives: its faults explain those of another.
type Link struct {
	Index   int           // among the explanations of the rule of the cause
	OfJob   bool          // both share a job: in one domain
	Shared  int           // how many fields both share
	After   time.Duration // how long after the cause the effect begins at least
	Within  time.Duration // and at most
	Lingers time.Duration // how long after the cause ended it may begin
	Early   time.Duration // how long before the cause its first sign may be
	Over    time.Duration // how long before the cause was seen it may have ended
	Near    time.Duration // how long before the effect the cause was last seen at most, 0 for any time
	Wide    bool          // they share the machine alone
	Alone   bool          // it is that of the effect, too: no end of its path, and none of a list
	Own     bool          // they share a job or a process
	// OfProcess: they share the pid of a process that is not the next one of that pid.
	OfProcess bool
	When      []int // evidence of the cause without which it does not hold
	Except    []int // evidence of the effect with which it does not hold
	In        []int // fields of the effect: a rank of the cause is in one of them
	NotIn     []int // and none is in one of these
}

// Node is the place of one verdict in its incident.
type Node struct {
	verdict  Verdict
	parent   *Node // what explains it
	via      *Link
	children []*Node
	root     string // id of the verdict that is the root cause, its own when it is one
	incident name
	ends     []end // where the graph has it
	has      map[end]struct{}
	names    map[uint64]struct{} // what its evidence names, as the graph knows it: hashes of it
}

// name is what people know an incident by. It stays when another root cause is found: a cause
// that comes to what they were told of is news of that incident, and no incident of its own.
type name struct {
	id   string // of a verdict that is in it, or was
	told bool   // somebody has read it
}

// NewNode is the place of a verdict that nothing explains yet.
func NewNode(v Verdict) *Node {
	return &Node{verdict: v, root: v.ID(), incident: name{id: v.ID()}}
}

// Entered reports whether the graph has it anywhere.
func (n *Node) Entered() bool { return len(n.ends) > 0 }

// past are the places that n has by evidence which the cap took.
func (n *Node) past() []end {
	here := map[end]struct{}{}
	if !n.verdict.Places(func(l *Link, values string, role Role) { here[end{meeting{l, values}, role}] = struct{}{} }) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.ends), func(e end) bool { _, there := here[e]; return there })
}

// Past visits the places that n has by evidence which the cap took.
func (n *Node) Past(visit func(l *Link, values string, role Role)) {
	for _, e := range n.past() {
		visit(e.link, e.values, e.role)
	}
}

// Named reports whether the graph knew already that the evidence of n names this.
func (n *Node) Named(name uint64) bool {
	if _, there := n.names[name]; there || len(n.names) >= maxEnds {
		return there
	}
	if n.names == nil {
		n.names = map[uint64]struct{}{}
	}
	n.names[name] = struct{}{}
	return false
}

// Root is the id of the root cause of its incident.
func (n *Node) Root() string { return n.root }

// Incident is the id of the verdict after which its incident is named, and whether that was told.
func (n *Node) Incident() (id string, told bool) { return n.incident.id, n.incident.told }

// Told is called when its verdict is given out.
func (n *Node) Told() {
	if !n.incident.told {
		n.top().rename(name{n.incident.id, true})
	}
}

// IsRoot reports whether nothing explains it.
func (n *Node) IsRoot() bool { return n.root == n.verdict.ID() }

// Cause is what explains it directly, nil for none.
func (n *Node) Cause() (Verdict, *Link) {
	if n.parent == nil {
		return nil, nil
	}
	return n.parent.verdict, n.via
}

// Explained visits all that it explains, directly or not.
func (n *Node) Explained(visit func(Verdict)) {
	stack := slices.Clone(n.children)
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = append(stack[:len(stack)-1], at.children...)
		visit(at.verdict)
	}
}

// GoesOn is how bad the worst is that n explains and awaits, and that is not over; "" where nothing is.
func (n *Node) GoesOn() (worst verdict.Severity) {
	n.Explained(func(v Verdict) {
		if severity := v.Severity(); v.Resolved() == 0 && !v.Expired() && n.Awaits(v) && severity.Compare(worst) > 0 {
			worst = severity
		}
	})
	return worst
}

// LastEnded is when the last of what could go on ended, 0 where nothing has.
func (n *Node) LastEnded() (last int64) {
	n.Explained(func(v Verdict) {
		if n.Awaits(v) && !v.Withdrawn() {
			last = max(last, v.Resolved())
		}
	})
	return last
}

// Awaits reports whether the incident of n lasts as long as an effect of it. What is trusted less than n keeps
// nobody awake, nor does information, such as that somebody ended the job.
func (n *Node) Awaits(effect Verdict) bool {
	return effect.Sure() && effect.Trust() >= n.verdict.Trust() && effect.Severity() != verdict.Info
}

// Over visits what explains n, directly or not, and is over: it says whether anything that it led to goes on.
func (n *Node) Over(visit func(Verdict)) {
	for above := n.parent; above != nil; above = above.parent {
		if above.verdict.Resolved() != 0 {
			visit(above.verdict)
		}
	}
}

// Turned is called when the verdict of n began, ended, or is open again.
func (n *Node) Turned() { n.Over(Verdict.Changed) }

// resolved lets what it explains learn that its verdict was resolved.
func (n *Node) resolved() {
	for _, child := range n.children {
		child.verdict.CauseCleared(n.verdict)
	}
}

// Grew is called when its verdict hits other ranks: all above it do, too.
func (n *Node) Grew() {
	for above := n.parent; above != nil; above = above.parent {
		above.verdict.Grew()
	}
}

// descendsFrom reports whether other explains n, directly or not.
func (n *Node) descendsFrom(other *Node) bool {
	for at := n; at != nil; at = at.parent {
		if at == other {
			return true
		}
	}
	return false
}

// top is the root cause of n.
func (n *Node) top() *Node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// reroot tells n and all it explains who their root cause is.
func (n *Node) reroot() {
	root := n.top().root
	stack := []*Node{n}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at.root != root {
			at.root = root
			at.verdict.Changed()
		}
		stack = append(stack, at.children...)
	}
}

// attach makes n a symptom of cause.
func (n *Node) attach(cause *Node, via *Link) {
	n.Grew()
	n.Turned()
	n.detach()
	n.parent, n.via = cause, via
	cause.children = append(cause.children, n)
	n.reroot()
	if n.incident.told && !cause.incident.told {
		n.top().rename(n.incident)
	} else {
		n.rename(cause.incident)
	}
	n.Grew()
	n.Turned()
}

// detach takes n from what explains it, as an incident of its own.
func (n *Node) detach() {
	if n.parent == nil {
		return
	}
	rest := n.top()
	n.unlink()
	n.part(rest)
}

// scatter makes each of those that n explains directly an incident of its own, but for what is withdrawn.
func (n *Node) scatter() (apart []*Node) {
	rest := n.top()
	for _, child := range n.children {
		if !child.verdict.Withdrawn() {
			apart = append(apart, child)
		}
	}
	for _, child := range apart {
		child.unlink()
		child.part(rest)
	}
	return apart
}

func (n *Node) unlink() {
	if n.parent == nil {
		return
	}
	n.parent.children = slices.DeleteFunc(n.parent.children, func(o *Node) bool { return o == n })
	n.parent, n.via = nil, nil
}

// part names the two incidents into which one falls: the name goes with the verdict that it is of.
func (n *Node) part(rest *Node) {
	if n.holds(n.incident.id) {
		rest.rename(name{id: rest.root})
		return
	}
	n.rename(name{id: n.verdict.ID()})
}

// holds reports whether a verdict is n, or is explained by it.
func (n *Node) holds(id string) bool {
	return n.verdict.ID() == id || slices.ContainsFunc(n.children, func(child *Node) bool { return child.holds(id) })
}

// rename tells n and all it explains what their incident is called.
func (n *Node) rename(to name) {
	stack := []*Node{n}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if at.incident.id != to.id {
			at.verdict.Changed()
		}
		at.incident = to
		stack = append(stack, at.children...)
	}
}

// release takes n from its incident. Its symptoms keep the root cause they were
// given, and the name.
func (n *Node) release() {
	n.unlink()
	for _, child := range n.children {
		child.parent, child.via = nil, nil
	}
	n.children = nil
}

// Restore puts n back under this root, and under its cause if that is known, in an incident of this name.
func (n *Node) Restore(root, incident string, told bool, cause *Node, via *Link) {
	n.root, n.incident = root, name{incident, told}
	if cause == nil || cause.descendsFrom(n) {
		return
	}
	n.parent, n.via = cause, via
	cause.children = append(cause.children, n)
}
