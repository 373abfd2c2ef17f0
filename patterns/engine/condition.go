package engine

import (
	"context"
	"regexp"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// condition is an OTTL condition in one of both contexts; zero is true.
type condition struct {
	plain *plain // the same, when it compares attributes with literals only
	reads []getter
	log   *rule.LogCondition
	point *rule.PointCondition
}

// getter reads one field of a record: an attribute directly, anything else
// through OTTL.
type getter struct {
	to        int
	attribute string
	resource  bool
	first     []getter // the first of these attributes that is there
	reads     []getter // what OTTL reads of the record
	log       *rule.LogValue
	point     *rule.PointValue
}

func newCondition(text string, onMetrics bool) (c condition, err error) {
	switch {
	case text == "":
	case onMetrics:
		c.point, err = rule.Points.Condition(text)
	default:
		c.log, err = rule.Logs.Condition(text)
	}
	c.plain, c.reads = plains.Of(text), reads.Of(text)
	return c, err
}

// plainPath is an expression that names one attribute and nothing else.
var plainPath = regexp.MustCompile(`^\s*(resource\.)?attributes\["([^"\\]+)"\]\s*$`)

// plainFirst is an expression that names the first of several attributes.
var plainFirst = regexp.MustCompile(`^\s*Coalesce\(\[([^\[\]]*\["[^"\\]+"\]\s*(,[^\[\]]*\["[^"\\]+"\]\s*)*)\]\)\s*$`)

var (
	directs = rule.Texts[getter]{Parse: newDirect}
	plains  = rule.Texts[*plain]{Parse: newPlain}
	reads   = rule.Texts[[]getter]{Parse: newReads}
)

// anyPath finds the attributes that an expression names.
var anyPath = regexp.MustCompile(`(resource\.)?attributes\["([^"\\]+)"\]`)

// newReads returns the getters of all attributes that an expression names.
func newReads(text string) (all []getter) {
	for _, path := range anyPath.FindAllStringSubmatch(text, -1) {
		all = append(all, getter{resource: path[1] != "", attribute: path[2]})
	}
	return all
}

// newFirst returns the getters of such an expression, none for any other.
func newFirst(text string) (all []getter) {
	list := plainFirst.FindStringSubmatch(text)
	if list == nil {
		return nil
	}
	for _, one := range strings.Split(list[1], ",") {
		path := plainPath.FindStringSubmatch(one)
		if path == nil {
			return nil
		}
		all = append(all, getter{resource: path[1] != "", attribute: path[2]})
	}
	return all
}

// newDirect returns the getter of an expression that names attributes and nothing else, zero
// for any other.
func newDirect(text string) getter {
	if first := newFirst(text); first != nil {
		return getter{first: first}
	}
	if path := plainPath.FindStringSubmatch(text); path != nil {
		return getter{resource: path[1] != "", attribute: path[2]}
	}
	return getter{}
}

func newGetter(text string, onMetrics bool) (g getter, err error) {
	if g = directs.Of(text); g.direct() {
		return g, nil
	}
	g.reads = reads.Of(text)
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
		e.failed(r, c.reads, err)
		return false
	}
	return ok
}

// direct reports whether g names attributes, and nothing else.
func (g *getter) direct() bool { return g.attribute != "" || g.first != nil }

// find returns the attribute that g names.
func (g *getter) find(r *record) (v pcommon.Value, ok bool) {
	if g.attribute != "" {
		from := r.attributes
		if g.resource {
			from = r.resource
		}
		return from.Get(g.attribute)
	}
	for i := range g.first {
		if v, ok := g.first[i].find(r); ok && v.Type() != pcommon.ValueTypeEmpty {
			return v, true
		}
	}
	return v, false
}

// get returns the value of g as it is, nil for none.
func (g *getter) get(e *Engine, r *record) any {
	if g.direct() {
		if v, ok := g.find(r); ok {
			return v
		}
		return nil
	}
	v, err := g.eval(r)
	if err != nil {
		e.failed(r, g.reads, err)
		return nil
	}
	return v
}

// failed counts what could not be evaluated on r. What lacks an attribute that it reads has no
// value, and that is no error.
func (e *Engine) failed(r *record, reads []getter, err error) {
	for i := range reads {
		if v, ok := reads[i].find(r); !ok || v.Type() == pcommon.ValueTypeEmpty {
			return
		}
	}
	if e.own.EvalErrors++; e.own.EvalErrors == 1 && e.judged != nil {
		e.own.EvalError = e.judgedOn(r) + ": " + clean(err.Error())
	}
}

// judgedOn is which pattern looks at which record.
func (e *Engine) judgedOn(r *record) string { return e.judged.Rule.Name + " on " + clean(r.source) }

// read returns the value of g as a bounded string, "" for none.
func (g *getter) read(e *Engine, r *record) string {
	if !g.direct() {
		return anyString(g.get(e, r))
	}
	v, ok := g.find(r)
	if !ok {
		return ""
	}
	return valueString(v) // without an interface around it: most fields are read here
}

func (g *getter) eval(r *record) (any, error) {
	if g.log != nil {
		return g.log.Eval(context.Background(), r.logContext())
	}
	return g.point.Eval(context.Background(), r.point)
}
