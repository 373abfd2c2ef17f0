package engine

import (
	"fmt"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// watch is evidence with what is asked of records for it.
type watch struct {
	*fault.Evidence
	where    condition
	while    condition // of stays
	value    *getter   // of changes
	fields   []getter
	operator *timeline.Operator // nil for occurs
	thing    []int              // on logs: fields whose values are one series
	group    []int              // of below_median
	heard    int64              // when a record of its names last came
}

// interest is who wants the records of one name.
type interest struct {
	watches    []*watch
	detections []*detection
}

func (i interest) none() bool { return len(i.watches)+len(i.detections) == 0 }

// compile fills e from rules and returns them compiled.
func (e *Engine) compile(rules []rule.Rule) ([]*fault.Rule, error) {
	if err := rule.Check(rules); err != nil {
		return nil, err
	}
	var compiled []*fault.Rule
	shared := rule.Shared(rules)
	for i := range rules {
		r := fault.NewRule(&rules[i], rules[i].FieldsInUse(shared[rules[i].Name]))
		for _, evidence := range r.Watches {
			w, err := e.newWatch(evidence)
			if err != nil {
				return nil, fmt.Errorf("compile %s: %w", rules[i].File, err)
			}
			e.enter(w)
		}
		e.detect(rules[i].Detect)
		compiled = append(compiled, r)
	}
	fault.Link(compiled)
	return compiled, nil
}

// enter enters w under the names of its records.
func (e *Engine) enter(w *watch) {
	e.watches[w.Evidence] = w
	e.order = append(e.order, w)
	for _, name := range w.Logs {
		by := e.logs[name]
		by.watches = append(by.watches, w)
		e.logs[name] = by
	}
	for _, name := range w.Metrics {
		by := e.metrics[name]
		by.watches = append(by.watches, w)
		e.metrics[name] = by
	}
}

func (e *Engine) newWatch(evidence *fault.Evidence) (w *watch, err error) {
	w = &watch{Evidence: evidence, thing: evidence.Thing(), group: evidence.Rule.Positions(evidence.Median.Of)}
	if w.Operator != rule.Occur {
		w.operator = &timeline.Operator{Does: w.Operator, Stays: w.Stays, Median: w.Median, Owner: evidence.Rule.Owner, Mark: e.markSeries(evidence)}
	}
	if w.where, err = newCondition(w.Where, w.OnMetrics()); err != nil {
		return nil, err
	}
	if w.while, err = newCondition(w.Stays.While, w.OnMetrics()); err != nil {
		return nil, err
	}
	if w.Value != "" {
		g, err := newGetter(w.Value, w.OnMetrics())
		if err != nil {
			return nil, err
		}
		w.value = &g
	}
	return w, w.readFields()
}

// readFields compiles the fields that w has and some rule uses.
func (w *watch) readFields() error {
	for _, f := range w.Rule.FieldsOf(w.Evidence.Evidence) {
		to, used := w.Rule.Position(f.Name)
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

// markSeries turns what a series shows into a mark.
func (e *Engine) markSeries(w *fault.Evidence) func(s *timeline.Series, shown timeline.Shown) {
	return func(s *timeline.Series, shown timeline.Shown) {
		e.faults.Place(w, fault.Mark{
			Time: shown.Time, Last: shown.Last, After: shown.After, Count: shown.Count, Late: shown.Late,
			Values: s.Values, Source: s.Source, Trust: s.Trust, Series: s.ID,
		})
	}
}
