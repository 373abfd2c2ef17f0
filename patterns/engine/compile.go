package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// ruleState is a compiled rule with its faults.
type ruleState struct {
	rule  *rule.Rule
	no    int
	names []string       // of its fields
	at    map[string]int // field name → position in names
	key   []int
	// rank is the position of the field that fills the blast radius: ranks, a
	// list, or else rank; -1 when there is neither.
	rank int
	list bool // it is ranks
	// identity are the fields that rules join by: two marks that differ in one
	// are not about the same process or thing.
	identity []int
	watches  []*watch // evidence in file order, then what resolves
	joins    [][]int  // the distinct sets of fields that evidence joins by
	lists    []int    // fields of which marks keep all ranks
	causes   []*link  // what it explains
	effects  []*link  // what explains it

	instances map[string]*instance // by key; removed on expiry or eviction
}

// watch is one piece of evidence of one rule, compiled.
type watch struct {
	*rule.Evidence
	state    *ruleState
	index    int // in state.watches
	resolves bool
	where    condition
	while    condition
	value    *getter
	fields   []getter
	match    []int // fields it joins by
	join     int   // that set's position in state.joins, -1 when it starts faults
	by       []int // fields that tell apart what counts by itself
	series   []int // on logs: fields whose values are one series
	group    []int
	follows  []int // watches
}

// link is one explanation: faults of cause explain those of effect when their
// fields have the same values.
type link struct {
	no            int
	cause, effect *ruleState
	mine, theirs  []int
	after, within int64
	unless        []*watch
	in, notIn     []int // lists of ranks of effect
}

// condition is an OTTL condition in one of both contexts; zero is true.
type condition struct {
	plain *plain // the same, when it compares attributes with literals only
	log   *rule.LogCondition
	point *rule.PointCondition
}

// getter reads one field of a record: an attribute directly, anything else
// through OTTL.
type getter struct {
	to        int
	attribute string
	resource  bool
	log       *rule.LogValue
	point     *rule.PointValue
}

// compile fills e from rules.
func (e *Engine) compile(rules []rule.Rule) error {
	if err := rule.Check(rules); err != nil {
		return err
	}
	byName, shared := map[string]*ruleState{}, rule.Shared(rules)
	for i := range rules {
		s, err := e.compileRule(&rules[i], shared[rules[i].Name])
		if err != nil {
			return fmt.Errorf("compile %s: %w", rules[i].File, err)
		}
		e.detect(s.rule.Detect)
		s.no = len(e.rules)
		e.rules = append(e.rules, s)
		byName[s.rule.Name] = s
	}
	e.byName = byName
	for _, s := range e.rules {
		e.compileLinks(s, byName)
	}
	return nil
}

// compileRule compiles r with the fields that it uses, and those that others share.
func (e *Engine) compileRule(r *rule.Rule, shared []string) (*ruleState, error) {
	s := &ruleState{rule: r, names: r.FieldsInUse(shared), at: map[string]int{}, rank: -1, instances: map[string]*instance{}}
	for i, name := range s.names {
		s.at[name] = i
	}
	for _, name := range []string{"rank", "ranks"} {
		if at, ok := s.at[name]; ok {
			s.rank, s.list = at, name == "ranks"
		}
	}
	s.key = s.positions(r.Key)
	for i, evidence := range r.All() {
		w := &watch{Evidence: evidence, state: s, index: i, resolves: i >= len(r.Evidence), join: -1}
		if err := w.compile(); err != nil {
			return nil, err
		}
		s.watches = append(s.watches, w)
	}
	for _, w := range s.watches {
		w.resolve(s)
		s.identity = append(append(s.identity, w.match...), w.by...)
		e.watch(w)
	}
	for _, x := range r.Explains {
		s.identity = append(s.identity, s.positions(x.Mine)...)
	}
	slices.Sort(s.identity)
	s.identity = slices.Compact(s.identity)
	return s, nil
}

// watch enters w under the names of its records.
func (e *Engine) watch(w *watch) {
	for _, name := range w.Logs {
		of := e.logs[name]
		of.watches = append(of.watches, w)
		e.logs[name] = of
	}
	for _, name := range w.Metrics {
		of := e.metrics[name]
		of.watches = append(of.watches, w)
		e.metrics[name] = of
	}
}

func (w *watch) compile() (err error) {
	if w.where, err = newCondition(w.Where, w.OnMetrics()); err != nil {
		return err
	}
	if w.while, err = newCondition(w.Stays.While, w.OnMetrics()); err != nil {
		return err
	}
	if w.Value != "" {
		g, err := newGetter(w.Value, w.OnMetrics())
		if err != nil {
			return err
		}
		w.value = &g
	}
	for _, f := range w.state.rule.FieldsOf(w.Evidence) {
		to, used := w.state.at[f.Name]
		if !used {
			continue
		}
		g, err := newGetter(f.Expr, w.OnMetrics())
		if err != nil {
			return err
		}
		g.to = to
		w.fields = append(w.fields, g)
	}
	return nil
}

// resolve turns the names in w into positions, once all evidence is there.
func (w *watch) resolve(s *ruleState) {
	w.match = s.positions(w.JoinFields(s.rule))
	w.by = s.positions(w.Occurs.By)
	w.series = slices.Clone(w.match)
	for _, at := range w.by {
		if !slices.Contains(w.series, at) {
			w.series = append(w.series, at)
		}
	}
	w.group = s.positions(w.Median.Of)
	if w.resolves || !w.CanStart() {
		w.join = slices.IndexFunc(s.joins, func(set []int) bool { return slices.Equal(set, w.match) })
		if w.join < 0 {
			w.join = len(s.joins)
			s.joins = append(s.joins, w.match)
		}
	}
	for _, other := range s.watches {
		if other.resolves {
			break
		}
		if w.Follows != nil && slices.Contains(w.Follows.Evidence, other.Name) {
			w.follows = append(w.follows, other.index)
		}
	}
}

func (s *ruleState) positions(names []string) []int {
	var at []int
	for _, name := range names {
		at = append(at, s.at[name])
	}
	return at
}

func (e *Engine) compileLinks(s *ruleState, byName map[string]*ruleState) {
	for _, x := range s.rule.Explains {
		other := byName[x.Pattern]
		l := &link{
			no: e.links, cause: s, effect: other, within: int64(x.Within),
			mine: s.positions(x.Mine), theirs: other.positions(x.Theirs), after: int64(x.After),
			in: other.positions(x.In), notIn: other.positions(x.NotIn),
		}
		other.lists = append(other.lists, slices.Concat(l.in, l.notIn)...)
		for _, name := range x.Unless {
			l.unless = append(l.unless, s.watchOf(name))
		}
		e.links++
		s.causes = append(s.causes, l)
		other.effects = append(other.effects, l)
	}
}

func newCondition(text string, onMetrics bool) (c condition, err error) {
	switch {
	case text == "":
	case onMetrics:
		c.point, err = rule.Points.Condition(text)
	default:
		c.log, err = rule.Logs.Condition(text)
	}
	c.plain = newPlain(text)
	return c, err
}

// plainPath is an expression that names one attribute and nothing else.
var plainPath = regexp.MustCompile(`^\s*(resource\.)?attributes\["([^"\\]+)"\]\s*$`)

func newGetter(text string, onMetrics bool) (g getter, err error) {
	if path := plainPath.FindStringSubmatch(text); path != nil {
		return getter{resource: path[1] != "", attribute: path[2]}, nil
	}
	if onMetrics {
		g.point, err = rule.Points.Value(text)
	} else {
		g.log, err = rule.Logs.Value(text)
	}
	return g, err
}

// holds evaluates c on a record; what cannot be evaluated does not hold.
func (c condition) holds(e *Engine, r *record) bool {
	if c.plain != nil {
		if got := c.plain.of(r); got != unclear {
			return got == holds
		}
	}
	ok, err := true, error(nil)
	switch {
	case c.log != nil:
		ok, err = c.log.Eval(context.Background(), r.logContext())
	case c.point != nil:
		ok, err = c.point.Eval(context.Background(), r.point)
	}
	if err != nil {
		e.stats.EvalErrors++
		return false
	}
	return ok
}

// get returns the value of g as it is, nil for none.
func (g *getter) get(e *Engine, r *record) any {
	if g.attribute != "" {
		from := r.attributes
		if g.resource {
			from = r.resource
		}
		v, ok := from.Get(g.attribute)
		if !ok {
			return nil
		}
		return v
	}
	v, err := g.eval(r)
	if err != nil {
		e.stats.EvalErrors++
		return nil
	}
	return v
}

// read returns the value of g as a bounded string, "" for none.
func (g *getter) read(e *Engine, r *record) string { return anyString(g.get(e, r)) }

func (g *getter) eval(r *record) (any, error) {
	if g.log != nil {
		return g.log.Eval(context.Background(), r.logContext())
	}
	return g.point.Eval(context.Background(), r.point)
}
