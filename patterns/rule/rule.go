// Package rule is the pattern file: what it can say, and the check that says
// in which file and line it says something else.
package rule

import (
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Rule is one pattern, parsed and valid. REFERENCE.md of the folder patterns
// lists all keys of the language.
type Rule struct {
	File string // where it was read, for messages
	ID   int
	Name string
	// Summary is the symptom in one line.
	Summary string

	// Detector names the Go detector whose findings the evidence reads, "" for
	// none; Detect is that detector once it is wired.
	Detector string
	Detect   *Detector

	Fields   []Field  // the rule's own, in file order; FieldsOf has the predefined ones too
	Identity []Field  // predefined fields that this rule reads elsewhere
	Key      []string // fields that tell one fault from another
	Culprit  []string // fields a verdict names; all when the file has no list
	Worst    Worst
	Evidence []Evidence
	Resolves []Evidence // that the fault has cleared
	Unless   []Unless

	Full    Expr
	Partial Expr // zero: the pattern has no partial verdict
	Trust   LeastTrust

	Within   time.Duration // evidence further apart is not one fault
	Expires  time.Duration // quiet this long, a fault leaves the state
	OnExpiry OnExpiry

	Returns  Returns
	HoldBack []HoldBack
	// Terminal faults do not end because their cause has cleared: a dead rank stays dead.
	Terminal bool
	// OfRun faults are of one start of a job. What another start shows is another fault,
	// they explain nothing of it, and it ends them.
	OfRun bool
	// Stands: while a fault lasts, the ranks of its job make no progress.
	Stands bool

	Explains []Explain
	// Itself is evidence that the fault began in its own job: what only shares its machine
	// explains nothing of it.
	Itself []string
	// Precedes is how long before its cause its first sign may be: sockets fall silent
	// between two steps, before anything is wrong.
	Precedes time.Duration
	Headline Choice
	Remedy   Choice
	Severity Choice

	Replaces   string // the built-in pattern whose place it takes, "" for none
	Parameters Values // in file order
	// Declares are names of events, metrics and attributes that only the site knows.
	Declares Declared

	idAt, nameAt, detectorAt position
	reads                    []mention
}

// LeastTrust is the least trust of the evidence that a verdict rests on. What would
// make a full verdict and is trusted less makes a partial one.
type LeastTrust struct{ Full, Partial verdict.Trust }

// OnExpiry says what becomes of an open verdict when its fault leaves the state.
type OnExpiry string

// Forget leaves the verdict open: nothing said that the fault cleared. Resolve
// closes it, for faults that are events rather than conditions.
const (
	Forget  OnExpiry = "forget"
	Resolve OnExpiry = "resolve"
)

// Field is a named value of a record.
type Field struct {
	Name string
	Expr string // OTTL value expression
	doc  string // of a predefined field
	at   position
}

// Evidence is one thing a pattern looks for.
type Evidence struct {
	Name    string
	Logs    []string // event names; either these
	Metrics []string // or metric names
	Where   string   // OTTL condition, "" for all
	Fields  []Field  // the rule's fields, with this evidence's own instead
	// Match are the fields it joins a fault by. Empty: it has the whole key and
	// can be the first evidence of a fault.
	Match  []string
	Shows  Template
	Absent Template // what a verdict says while it is not seen

	Value    string // OTTL value expression of Changes and Increases on logs
	Occurs   Occurs // always set: how many marks make it true
	Operator Operator
	Stays    Stays
	Median   Median
	Follows  *Follows
	Accuses  []string // fields of the ranks that it accuses for sure
	Hides    []string // fields that the verdict does not name while it holds
	Quotes   []string // fields that the verdict shows although they are trusted less
	FirstOf  []string // evidence: it holds only where none of that came before it
	// SoonBefore: it holds only where it came at most Within before the first of Evidence.
	SoonBefore *Follows
	Lead       *Lead    // how far its first thing must be ahead of the next
	Except     []string // evidence: it holds only while none of that does
	Unsaid     []string // evidence: a mark counts only while its process has none of that
	Until      *Until   // what ends the thing of a mark, so that it counts no more
	Believed   bool     // a claimed mark counts as if it were trusted as much as the verdict
	Newest     bool     // of each thing the newest mark alone counts
	Reboot     bool     // it resolves where it is of a later boot of the machine
	at         position
}

// Until is what ends a thing: one of Evidence with the same values of By, before the first of Before.
type Until struct {
	Evidence, By, Before []string
}

// Lead is how far the first of several things is ahead of the second: by Least, and by Times
// what lies between the second and the last.
type Lead struct {
	Least time.Duration
	Times int
}

// Operator says which records count.
type Operator string

// The operators. Each turns records into marks on the time line of a fault;
// Occurs then says how many marks within which window make the evidence true.
const (
	Occur       Operator = "occurs"       // each record, by its count
	Increase    Operator = "increases"    // the rise of a counter
	Change      Operator = "changes"      // each transition of a value
	Stay        Operator = "stays"        // a condition that held for a time
	BelowMedian Operator = "below_median" // a rate far below its group's median
)

// Occurs: marks that add up to Count within Within. With By, each value of these
// fields is a thing of its own and adds up by itself, and so many things as Values
// must reach Count. On logs a series follows one such thing.
type Occurs struct {
	Count  float64
	Within time.Duration
	By     []string
	Values int
}

// Stays: While held for For. A gap between samples longer than MaxGap breaks
// it; zero: a state lasts until a record says otherwise.
type Stays struct {
	While  string // OTTL condition
	For    time.Duration
	MaxGap time.Duration
}

// Median: the rate (of a counter) or mean (of a gauge) over Over lies below
// Ratio times the median of the series that share the fields Of, for at least
// MinMembers series; Stays holds how long.
type Median struct {
	Of         []string
	Ratio      float64
	Over       time.Duration
	MinMembers int
}

// Follows: marks count only at most Within after a mark of one of Evidence.
type Follows struct {
	Evidence []string
	Within   time.Duration
}

// HoldBack keeps a verdict that begins with Evidence for a moment, until one of Unless
// holds or For is over: what comes at once may say that it is another.
type HoldBack struct {
	Evidence string
	For      time.Duration
	Unless   []string
}

// Worst says which of several things names the fault: that whose value of a field stands
// first among Values. By is "" for none.
type Worst struct {
	By     string
	Values []string
}

// Unless withdraws a verdict when Evidence came at most Within before Before.
type Unless struct {
	Evidence string
	Before   string
	Within   time.Duration
}

// Returns: seen so long after it was last seen, with another value of one of the fields,
// a fault has ended and begun anew. So it has once it is seen of another process, and Ended tells
// the end of all that it named before; but not where something of it is among Worst.
type Returns struct {
	With  []string
	After time.Duration
	Ended string
}

// Explain says which verdicts of another pattern this one causes.
type Explain struct {
	Pattern string
	Mine    []string // fields of this pattern
	Theirs  []string // fields of the other, in the same order
	// Among is which of Theirs is a list: the value of this pattern is one of its members.
	// -1 for none.
	Among int
	// After is how long after it such a verdict begins at least, 0 for one that may
	// begin with it: what a watchdog tells, when this one may be history.
	After  time.Duration
	Within time.Duration
	Before time.Duration // how long before it such a verdict may be told: it is found later
	// Near is how long before the beginning of the other this one was last seen at most, 0 for
	// any time: what is over by then has done no harm.
	Near time.Duration
	// Lingers is how long after its end what it broke may still show; with Before also how long before this one
	// was seen it may have ended.
	Lingers time.Duration
	When    []string // only where one of these pieces of evidence was seen
	Except  []string // not where one of these of the other was
	// In and NotIn are lists of ranks of the other. Of the ranks seen on this one up
	// to After before the other, one at least is in one of In, if there are any, and
	// none is in NotIn.
	In    []string
	NotIn []string
	at    position
}

// OnMetrics reports whether e watches metrics rather than logs.
func (e *Evidence) OnMetrics() bool { return len(e.Metrics) > 0 }

// CanStart reports whether e alone can begin a fault.
func (e *Evidence) CanStart() bool { return len(e.Match) == 0 }

// JoinFields returns the fields that lead from a record of e to its faults.
func (e *Evidence) JoinFields(r *Rule) []string {
	if len(e.Match) == 0 {
		return r.Key
	}
	return e.Match
}

// All returns evidence and resolving evidence, in that order.
func (r *Rule) All() []*Evidence {
	all := make([]*Evidence, 0, len(r.Evidence)+len(r.Resolves))
	for i := range r.Evidence {
		all = append(all, &r.Evidence[i])
	}
	for i := range r.Resolves {
		all = append(all, &r.Resolves[i])
	}
	return all
}
