package rule

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// FieldCount is a field that shows has without a definition: how often the
// evidence was seen.
const FieldCount = "count"

// check fails what each key alone could not show, and compiles all OTTL.
func (d *decoder) check(n *yaml.Node, r *Rule, parsers *Parsers) {
	for _, need := range []struct {
		missing bool
		what    string
	}{
		{r.ID == 0, "id"},
		{r.Name == "", "name"},
		{r.Summary == "", "summary"},
		{len(r.Key) == 0, "key"},
		{len(r.Evidence) == 0, "evidence"},
		{r.Full.IsZero(), "full"},
		{r.Headline.Default.Text == "", "headline"},
		{r.Remedy.Default.Text == "", "remedy"},
		{r.Severity.Default.Text == "", "severity"},
	} {
		if need.missing {
			d.fail(n, "%s is missing: add %s", need.what, need.what)
		}
	}
	if r.Name != "" && !isName(r.Name) {
		d.fail(n, "name %q: use lower-case letters, digits and _", r.Name)
	}
	if len(r.FieldNames()) > maxFields {
		d.fail(n, "more than %d fields", maxFields)
	}
	d.later = append(d.later, func() {
		d.checkTemplates(n, r)
		d.checkEvidence(r, parsers)
	})
}

func (d *decoder) checkEvidence(r *Rule, parsers *Parsers) {
	seen := map[string]bool{}
	starts := false
	for i, e := range r.All() {
		at := &yaml.Node{Line: e.line}
		if seen[e.Name] {
			d.fail(at, "evidence %s is there twice: rename one", e.Name)
		}
		seen[e.Name] = true
		starts = starts || i < len(r.Evidence) && e.CanStart()
		d.checkOne(at, r, e, parsers)
	}
	if !starts {
		d.fail(&yaml.Node{Line: 1}, "no evidence can begin a fault: one piece of evidence must do without match")
	}
}

func (d *decoder) checkOne(at *yaml.Node, r *Rule, e *Evidence, parsers *Parsers) {
	if (len(e.Logs) == 0) == (len(e.Metrics) == 0) {
		d.fail(at, "evidence %s needs logs (event names) or metrics (metric names), one of them", e.Name)
	}
	if e.Shows.Text == "" {
		d.fail(at, "evidence %s: shows is missing: say in plain words what it shows", e.Name)
	}
	ottl := func(line int, what, text string, parse func(bool, string) error) {
		checked := ottlText{text: text, onMetrics: e.OnMetrics()}
		if text == "" || d.checked[checked] {
			return
		}
		d.checked[checked] = true
		if err := parse(e.OnMetrics(), text); err != nil {
			d.fail(&yaml.Node{Line: line}, "%s of evidence %s is not valid OTTL: %v: see the OTTL grammar, paths are attributes[\"…\"] and resource.attributes[\"…\"]", what, e.Name, err)
		}
	}
	ottl(e.line, "where", e.Where, parsers.condition)
	ottl(e.line, "while", e.Stays.While, parsers.condition)
	ottl(e.line, "value", e.Value, parsers.value)
	fields := r.FieldsOf(e)
	for _, f := range fields {
		ottl(f.line, "field "+f.Name, f.Expr, parsers.value)
	}
	d.checkOperator(at, e)
	for _, name := range e.JoinFields(r) {
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
			d.fail(at, "evidence %s joins by field %s but has no such field: define it under fields", e.Name, name)
		}
	}
}

func (d *decoder) checkOperator(at *yaml.Node, e *Evidence) {
	switch {
	case e.Operator == Change && e.Value == "" && !e.OnMetrics():
		d.fail(at, "evidence %s: changes on logs needs value, the OTTL expression that is compared", e.Name)
	case (e.Operator == Increase || e.Operator == BelowMedian) && !e.OnMetrics():
		d.fail(at, "evidence %s: %s is for metrics", e.Name, e.Operator)
	case e.Occurs.Within > maxDuration:
		d.fail(at, "evidence %s: within is longer than %v", e.Name, maxDuration)
	}
}

func (d *decoder) checkTemplates(n *yaml.Node, r *Rule) {
	names := r.FieldNames()
	check := func(line int, what string, t Template) {
		for _, field := range t.Fields() {
			if field != FieldCount && !slices.Contains(names, field) {
				d.fail(&yaml.Node{Line: line}, "%s uses {%s}, which is no field: %s", what, field, suggest(field, names))
			}
		}
	}
	for _, c := range []struct {
		what string
		Choice
	}{{"headline", r.Headline}, {"remedy", r.Remedy}, {"severity", r.Severity}} {
		for _, t := range c.templates() {
			check(n.Line, c.what, t)
		}
		if c.By != "" {
			d.known(n, "field", c.By, names)
		}
	}
	for _, e := range r.All() {
		check(e.line, "evidence "+e.Name, e.Shows)
		check(e.line, "evidence "+e.Name, e.Absent)
	}
}

// setDefaults fills what the file left open.
func (r *Rule) setDefaults() {
	if r.Within == 0 {
		r.Within = 5 * time.Minute
	}
	if r.Expires == 0 {
		r.Expires = 24 * time.Hour
	}
	for _, e := range r.All() {
		if e.Occurs.Within == 0 || e.Occurs.Within > r.Within {
			e.Occurs.Within = r.Within
		}
	}
	if len(r.Culprit) == 0 {
		r.Culprit = r.FieldNames()
	}
}

// Check fails when rules do not fit together: an id or a name used twice, or
// an explanation of a pattern or field that is not there.
func Check(rules []Rule) error {
	var errs []error
	byName, byID := map[string]*Rule{}, map[int]*Rule{}
	var names []string
	for i := range rules {
		r := &rules[i]
		if other, taken := byName[r.Name]; taken {
			errs = append(errs, fmt.Errorf("%s: the name %s is taken by %s: choose another name", r.File, r.Name, other.File))
		}
		if other, taken := byID[r.ID]; taken {
			errs = append(errs, fmt.Errorf("%s: the id %d is taken by %s (%s): choose another id, 1000 and above are free for your own", r.File, r.ID, other.File, other.Name))
		}
		byName[r.Name], byID[r.ID] = r, r
		names = append(names, r.Name)
	}
	for i := range rules {
		errs = append(errs, checkDetector(&rules[i]))
		for _, x := range rules[i].Explains {
			errs = append(errs, checkExplain(&rules[i], x, byName, names))
		}
	}
	return errors.Join(errs...)
}

func checkExplain(r *Rule, x Explain, byName map[string]*Rule, names []string) error {
	other, ok := byName[x.Pattern]
	if !ok {
		return fmt.Errorf("%s:%d: explains an unknown pattern %q: %s", r.File, x.line, x.Pattern, suggest(x.Pattern, names))
	}
	for _, field := range x.Theirs {
		if fields := other.FieldNames(); !slices.Contains(fields, field) {
			return fmt.Errorf("%s:%d: %s has no field %q: %s", r.File, x.line, x.Pattern, field, suggest(field, fields))
		}
	}
	return nil
}
