package engine

import (
	"context"
	"regexp"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

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
		e.own.EvalErrors++
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
		e.own.EvalErrors++
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
