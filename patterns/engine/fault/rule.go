package fault

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Rule is a compiled rule with its faults.
type Rule struct {
	*rule.Rule
	Names []string // of its fields; the values of its marks are in this order
	// Watches is the evidence in file order, then what resolves.
	Watches []*Evidence
	// Rank is the position of the field that fills the blast radius: ranks, a list,
	// or else rank; -1 when there is neither.
	Rank     int
	RankList bool  // it is ranks
	Lists    []int // fields of which marks keep all ranks
	Members  []int // fields of which marks keep all members, as text

	jobs map[int]bool   // fields that name a job: it is the same only in one domain
	ages map[int]bool   // fields that say how long something lasts: the newest value counts
	at   map[string]int // field name → position in Names
	// identity are the fields that rules join by: two marks that differ in one
	// are not about the same process or thing.
	identity []int
	whose    []int         // fields that say whose fault it is, and those that links share
	joins    [][]int       // the distinct sets of fields that evidence joins by
	causes   []explanation // what it explains
	sources  []*Rule       // that explain it
	effects  []explanation // what explains it

	faults map[string]*Fault // by key; removed on expiry or eviction
	aside  map[string]*Fault // by key, those that cleared and may return

	answers answers
}

// Evidence is one piece of evidence of one rule, compiled.
type Evidence struct {
	*rule.Evidence
	Rule     *Rule
	Resolves bool
	Match    []int // fields it joins by
	OfJob    bool  // one of these names a job
	// OfProcess: one of these is the pid, and so all are about one process.
	OfProcess bool
	OfMachine bool  // it joins by the machine alone
	decides   bool  // what makes the verdict full, or partial, names it
	By        []int // fields that tell apart what counts by itself
	// parts are fields, beyond the key and the machine, of what it resolves of a fault: of its GPUs one.
	parts []int

	index   int // in Rule.Watches
	join    int // position of Match in Rule.joins, -1 when it starts faults
	follows []int
	accuses []int // fields of the ranks that it accuses
	hides   []int // fields that the verdict does not name while it holds
	quotes  []int // fields that the verdict shows although they are trusted less
	firstOf []int // evidence of which none came before it
	leads   []int // evidence before the first of which it came
	except  []int // evidence of which none holds
	unsaid  []int // evidence that the process of a mark must not have
	over    []int // evidence that ends its thing
	overBy  []int // the fields of that
	overAt  []int // evidence that the end came before
	said    bool  // other evidence asks for the processes that have it not
	keep    int   // marks it needs, where that is more than the cap
}

// explanation is a link with the fields that one side shares.
type explanation struct {
	link   *incident.Link
	fields []int
	among  int // the field that is a list, of which one member is shared; -1 for none
}

// meets calls enter with each tuple of values that a mark shares by x.
func (x *explanation) meets(m *Mark, enter func(values string)) {
	if x.among < 0 {
		if t, ok := Tuple(m.Values, x.fields); ok {
			enter(t)
		}
		return
	}
	values := slices.Clone(m.Values)
	for _, values[x.among] = range m.Members[x.among] {
		if t, ok := Tuple(values, x.fields); ok {
			enter(t)
		}
	}
}

// maxNeeded bounds the marks that one piece of evidence keeps because it counts
// so many.
const maxNeeded = 256

// NewRule compiles r, whose marks have values of the fields called names.
func NewRule(r *rule.Rule, names []string) *Rule {
	s := &Rule{Rule: r, Names: names, at: map[string]int{}, jobs: map[int]bool{}, ages: map[int]bool{}, Rank: -1, faults: map[string]*Fault{}}
	for i, name := range s.Names {
		s.at[name] = i
	}
	s.findFields()
	for _, name := range []string{"rank", "ranks"} {
		if at, ok := s.at[name]; ok {
			s.Rank, s.RankList = at, name == "ranks"
		}
	}
	if at, ok := s.at[rule.FieldPIDs]; ok {
		s.Members = append(s.Members, at)
	}
	for i, evidence := range r.All() {
		s.Watches = append(s.Watches, &Evidence{Evidence: evidence, Rule: s, index: i, Resolves: i >= len(r.Evidence), join: -1})
	}
	for _, w := range s.Watches {
		w.compile()
		s.identity = slices.Concat(s.identity, w.Match, w.By)
	}
	for _, x := range r.Explains {
		s.identity = append(s.identity, s.Positions(x.Mine)...)
	}
	if slices.Contains(s.identity, s.at["pid"]) {
		s.identity = append(s.identity, s.at["started"])
	}
	slices.Sort(s.identity)
	s.identity = slices.Compact(s.identity)
	return s
}

// compile turns the names in w into positions, once all evidence is there.
func (w *Evidence) compile() {
	r := w.Rule
	w.Match = r.Positions(w.JoinFields(r.Rule))
	w.OfJob, w.OfProcess = r.ofJob(w.Match), slices.Contains(w.Match, r.at["pid"])
	w.By = r.Positions(w.Occurs.By)
	if w.Resolves {
		w.parts = r.Positions(slices.DeleteFunc(slices.Clone(w.Evidence.Match), func(field string) bool {
			return slices.Contains(r.Key, field) || slices.Contains(machine, field)
		}))
	}
	w.decides = slices.Contains(r.Full.Names(), w.Name) || slices.Contains(r.Partial.Names(), w.Name)
	w.OfMachine = !w.Resolves && len(w.Evidence.Match) > 0 && !slices.ContainsFunc(w.Evidence.Match, func(field string) bool { return !slices.Contains(machine, field) })
	if w.Operator == rule.Occur || w.Operator == rule.Change {
		w.keep = int(min(math.Ceil(w.Occurs.Count)*float64(w.Occurs.Values), maxNeeded))
	}
	w.said = slices.ContainsFunc(r.Evidence, func(o rule.Evidence) bool { return slices.Contains(o.Unsaid, w.Name) })
	if w.Resolves || !w.CanStart() {
		w.join = slices.IndexFunc(r.joins, func(set []int) bool { return slices.Equal(set, w.Match) })
		if w.join < 0 {
			w.join = len(r.joins)
			r.joins = append(r.joins, w.Match)
		}
	}
	if w.Until != nil {
		w.overBy = r.Positions(w.Until.By)
	}
	w.accuses, w.hides, w.quotes = r.Positions(w.Accuses), r.Positions(w.Hides), r.Positions(w.Quotes)
	r.Lists = append(r.Lists, w.accuses...)
	for _, other := range r.Watches {
		if !other.Resolves && slices.Contains(w.FirstOf, other.Name) {
			w.firstOf = append(w.firstOf, other.index)
		}
		if !other.Resolves && slices.Contains(w.Except, other.Name) {
			w.except = append(w.except, other.index)
		}
		if !other.Resolves && slices.Contains(w.Unsaid, other.Name) {
			w.unsaid = append(w.unsaid, other.index)
		}
		if !other.Resolves && w.Until != nil && slices.Contains(w.Until.Evidence, other.Name) {
			w.over = append(w.over, other.index)
		}
		if !other.Resolves && w.Until != nil && slices.Contains(w.Until.Before, other.Name) {
			w.overAt = append(w.overAt, other.index)
		}
		if !other.Resolves && w.SoonBefore != nil && slices.Contains(w.SoonBefore.Evidence, other.Name) {
			w.leads = append(w.leads, other.index)
		}
		if !other.Resolves && w.Follows != nil && slices.Contains(w.Follows.Evidence, other.Name) {
			w.follows = append(w.follows, other.index)
		}
	}
}

// The predefined fields that name a machine, and those that name whose fault it is.
var (
	machine = []string{"host", "node", "boot"}
	own     = []string{"job", "run", "pid", "pod", "container"}
)

// Link enters what the rules explain of each other.
func Link(rules []*Rule) {
	for _, cause := range rules {
		for i, x := range cause.Explains {
			effect := rules[slices.IndexFunc(rules, func(r *Rule) bool { return r.Name == x.Pattern })]
			l := &incident.Link{
				Index: i, Shared: len(x.Mine), After: x.After, Within: x.Within, Early: max(effect.Precedes, x.Before), Near: x.Near, Lingers: x.Lingers,
				In: effect.Positions(x.In), NotIn: effect.Positions(x.NotIn),
			}
			if x.Before > 0 {
				l.Over = x.Lingers
			}
			other := func(field string) bool { return !slices.Contains(machine, field) }
			l.Wide = !slices.ContainsFunc(x.Mine, other)
			l.Alone = l.Wide && !slices.ContainsFunc(x.Theirs, other)
			l.Own = slices.ContainsFunc(slices.Concat(x.Mine, x.Theirs), func(field string) bool { return slices.Contains(own, field) })
			l.OfJob = cause.ofJob(cause.Positions(x.Mine)) || effect.ofJob(effect.Positions(x.Theirs))
			l.OfProcess = slices.ContainsFunc(x.Mine, func(field string) bool { return field == "pid" && x.Theirs[slices.Index(x.Mine, field)] == field })
			l.When, l.Except = cause.indexes(x.When), effect.indexes(x.Except)
			if l.Wide {
				l.Except = append(l.Except, effect.indexes(effect.Itself)...)
			}
			effect.Lists = slices.Concat(effect.Lists, l.In, l.NotIn)
			theirs := explanation{l, effect.Positions(x.Theirs), -1}
			if x.Among >= 0 {
				theirs.among = theirs.fields[x.Among]
				effect.Members = append(effect.Members, theirs.among)
			}
			cause.causes = append(cause.causes, explanation{l, cause.Positions(x.Mine), -1})
			effect.effects = append(effect.effects, theirs)
			effect.sources = append(effect.sources, cause)
		}
	}
	for _, r := range rules {
		r.findWhose()
	}
}

// findWhose finds the fields by which marks differ for the graph of incidents.
func (r *Rule) findWhose() {
	r.whose = nil
	for _, name := range []string{"host", "boot", "pid", "started", "job", "job_domain", "run", "gpu", "rank"} {
		if at, ok := r.at[name]; ok {
			r.whose = append(r.whose, at)
		}
	}
	for _, x := range slices.Concat(r.causes, r.effects) {
		r.whose = append(r.whose, x.fields...)
	}
	slices.Sort(r.whose)
	r.whose = slices.Compact(r.whose)
}

// names is of this process: nobody can choose two names of one hash.
var names = maphash.MakeSeed()

// name is a hash of what m names, as the graph of incidents tells marks apart. A mark may list all
// ranks of a job, and the graph keeps thousands of names.
func (r *Rule) name(m *Mark) uint64 {
	var h maphash.Hash
	h.SetSeed(names)
	write := func(one string) {
		_, _ = h.WriteString(one)
		_ = h.WriteByte(0)
	}
	for _, at := range r.whose {
		write(m.Values[at])
	}
	write(m.Run)
	for _, at := range r.Members {
		for _, one := range m.Members[at] {
			write(one)
		}
	}
	return h.Sum64()
}

// Positions of the fields of these names.
func (r *Rule) Positions(names []string) []int {
	var at []int
	for _, name := range names {
		at = append(at, r.at[name])
	}
	return at
}

// Position of the field called name; false where nothing uses it.
func (r *Rule) Position(name string) (int, bool) {
	at, ok := r.at[name]
	return at, ok
}

// get returns the value of the field called name, "" for none.
func (r *Rule) get(values []string, name string) string {
	if at, ok := r.at[name]; ok {
		return values[at]
	}
	return ""
}

// Owner says whose room a mark takes: that of its node, of this pattern on it, and of its
// job in its domain. The engine reads these fields for every rule.
func (r *Rule) Owner(values []string) []string {
	return r.appendOwner(make([]string, 0, ownerLevels), values)
}

// ownerLevels is how many names say whose room it is.
const ownerLevels = 4

func (r *Rule) appendOwner(to, values []string) []string {
	return append(to, cmp.Or(r.get(values, "node"), r.get(values, "host")), r.Name, r.get(values, "job_domain"), r.get(values, "job"))
}

// ownerOf is the owner of a saved fault.
func (r *Rule) ownerOf(saved *Saved) []string {
	return append(slices.Clone(saved.Owner), make([]string, ownerLevels)...)[:ownerLevels]
}

// watch returns the evidence called name, nil for none.
func (r *Rule) watch(name string) *Evidence {
	for _, w := range r.Watches {
		if w.Name == name {
			return w
		}
	}
	return nil
}

// indexes are those of the evidence of these names.
func (r *Rule) indexes(names []string) (at []int) {
	for _, name := range names {
		at = append(at, r.watch(name).index)
	}
	return at
}

// heldOf and namesOf turn names of evidence, which does not resolve, into a set and back. Another version of the
// rule may have had others.
func (r *Rule) heldOf(names []string) (h held) {
	for _, w := range r.Watches {
		if !w.Resolves && slices.Contains(names, w.Name) {
			h.add(w.index)
		}
	}
	return h
}

func (r *Rule) namesOf(h held) (names []string) {
	for _, w := range r.Watches {
		if !w.Resolves && h.has(w.index) {
			names = append(names, w.Name)
		}
	}
	return names
}

// refutes reports whether the evidence called name speaks against a fault.
func (r *Rule) refutes(name string) bool {
	return slices.ContainsFunc(r.Unless, func(u rule.Unless) bool { return u.Evidence == name })
}

// agree reports whether no field that identifies something differs.
func (r *Rule) agree(a, b []string) bool {
	for _, at := range r.identity {
		if a[at] != b[at] && a[at] != "" && b[at] != "" {
			return false
		}
	}
	return true
}

// depends reports whether w holds by what other evidence came, or did not come.
func (w *Evidence) depends() bool {
	return len(w.firstOf)+len(w.leads)+len(w.except)+len(w.unsaid)+len(w.over) > 0 || w.Lead != nil
}

// countsRanks reports whether w asks for so many ranks.
func (w *Evidence) countsRanks() bool {
	return w.Occurs.Values > 1 && len(w.By) == 1 && w.By[0] == w.Rule.Rank && !w.Rule.RankList
}

// Thing is the fields whose values tell one series of log records from another:
// those of the fault and, within it, of what the evidence follows.
func (w *Evidence) Thing() []int {
	fields := slices.Clone(w.Match)
	for _, at := range w.By {
		if !slices.Contains(fields, at) {
			fields = append(fields, at)
		}
	}
	return fields
}
