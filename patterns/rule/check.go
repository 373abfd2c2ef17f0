package rule

import (
	"errors"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"
)

// Fields that templates have without a definition: how often the evidence was seen; where
// it counts things, the time from the first to the last of them, and to the second.
// A headline or remedy has them of the evidence that names the culprit.
const (
	FieldCount = "count"
	FieldSpan  = "span"
	FieldLead  = "lead"
)

// computed reports whether a field is one of these.
func computed(field string) bool {
	return field == FieldCount || field == FieldSpan || field == FieldLead
}

// checkEvidence fails what each key alone could not show.
func (d *decoder) checkEvidence(n *yaml.Node, r *Rule) {
	if len(r.FieldNames()) > maxFields {
		d.fail(n, "more than %d fields: leave out what no template and no key uses", maxFields)
	}
	d.checkIdentity(r)
	seen := map[string]bool{}
	starts := false
	for i, e := range r.All() {
		if seen[e.Name] {
			d.failAt(e.at, "evidence %s is there twice: rename one", e.Name)
		}
		seen[e.Name] = true
		starts = starts || i < len(r.Evidence) && e.CanStart()
		d.checkOne(r, e)
	}
	if !starts {
		d.fail(n, "no evidence can begin a fault: one piece of evidence must do without match")
	}
}

func (d *decoder) checkOne(r *Rule, e *Evidence) {
	if (len(e.Logs) == 0) == (len(e.Metrics) == 0) {
		d.failAt(e.at, "evidence %s needs logs (event names) or metrics (metric names), one of them", e.Name)
	}
	fields := r.FieldsOf(e)
	for _, f := range fields {
		d.compile(f.at, "field "+f.Name, f.Expr, e, checkValue)
	}
	d.checkOperator(e)
	for _, name := range slices.Concat(e.JoinFields(r), e.Occurs.By) {
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
			d.failAt(e.at, "evidence %s needs field %s, which its records do not have: define it under fields", e.Name, name)
		}
	}
}

func (d *decoder) checkOperator(e *Evidence) {
	switch {
	case e.Operator == Change && e.Value == "" && !e.OnMetrics():
		d.failAt(e.at, "evidence %s: changes on logs needs value, the OTTL expression that is compared", e.Name)
	case (e.Operator == Increase || e.Operator == BelowMedian) && !e.OnMetrics():
		d.failAt(e.at, "evidence %s: %s is for metrics: use occurs or changes", e.Name, e.Operator)
	case (e.Operator == Stay || e.Operator == Change) && !e.OnMetrics() && len(e.Occurs.By) == 0:
		d.failAt(e.at, "evidence %s: %s on logs needs by, the fields of the one thing whose state is followed: by: [host, pid] for a process, "+
			"by: [device] for a device", e.Name, e.Operator)
	case e.Occurs.Values > 1 && len(e.Occurs.By) == 0:
		d.failAt(e.at, "evidence %s: values counts the values of by: write by, or leave out values", e.Name)
	}
}

// setDefaults fills what the file left open and other keys decide.
func (r *Rule) setDefaults() {
	for _, e := range r.All() {
		if e.Occurs.Within == 0 || e.Occurs.Within > r.Within {
			e.Occurs.Within = r.Within
		}
	}
	if len(r.Culprit) == 0 {
		r.Culprit = r.FieldNames()
	}
}

// firstOwn is the first id that is free for patterns of a site.
const firstOwn = 1000

// CheckOwn fails for rules of an operator with an id that tracecore keeps for its own: an
// upgrade may bring a pattern that has it. A file that replaces a built-in pattern has its id.
func CheckOwn(own, builtIn []Rule) error {
	var errs []error
	for i := range own {
		r := &own[i]
		replaced := slices.IndexFunc(builtIn, func(b Rule) bool { return b.Name == r.Replaces })
		switch {
		case r.ID >= firstOwn, replaced >= 0 && builtIn[replaced].ID == r.ID:
		case replaced >= 0:
			errs = append(errs, fmt.Errorf("%s: id %d: write %d, the id of %s, which this file replaces", r.idAt.in(r.File), r.ID, builtIn[replaced].ID, r.Replaces))
		default:
			errs = append(errs, fmt.Errorf("%s: id %d: ids below %d are tracecore's: write %d or above", r.idAt.in(r.File), r.ID, firstOwn, firstOwn))
		}
	}
	return errors.Join(errs...)
}

// Check fails when rules do not fit together: an id or a name used twice, or
// an explanation of a pattern or field that is not there.
func Check(rules []Rule) error {
	var errs []error
	byName, byID, fields := map[string]*Rule{}, map[int]*Rule{}, map[string][]string{}
	var names []string
	for i := range rules {
		r := &rules[i]
		if other, taken := byName[r.Name]; taken {
			errs = append(errs, nameTaken(r, other))
		}
		if other, taken := byID[r.ID]; taken && other.File != r.File {
			errs = append(errs, fmt.Errorf("%s: the id %d is taken by %s (%s): choose another id, 1000 and above are free for your own", r.idAt.in(r.File), r.ID, other.File, other.Name))
		}
		byName[r.Name], byID[r.ID], fields[r.Name] = r, r, r.FieldNames()
		names = append(names, r.Name)
	}
	byDetector := map[string]*Rule{}
	for i := range rules {
		errs = append(errs, checkDetector(&rules[i]))
		if rules[i].Detect != nil {
			if other := byDetector[rules[i].Detector]; other != nil {
				errs = append(errs, checkSharedDetector(&rules[i], other))
			}
			byDetector[rules[i].Detector] = &rules[i]
		}
		for _, x := range rules[i].Explains {
			errs = append(errs, checkExplain(&rules[i], x, byName[x.Pattern], names, fields[x.Pattern]))
		}
	}
	return errors.Join(errs...)
}

// nameTaken says why a name is there twice. Only the place of a built-in pattern can be taken.
func nameTaken(r, other *Rule) error {
	switch {
	case r.File == other.File:
		return fmt.Errorf("%s is read twice: name the file, or a folder that has it, once", r.File)
	case other.ID >= firstOwn:
		return fmt.Errorf("%s: the name %s is taken by %s: choose another name", r.nameAt.in(r.File), r.Name, other.nameAt.in(other.File))
	default:
		return fmt.Errorf("%s: the name %s is taken by %s: choose another name, or write replaces: %s to take its place", r.nameAt.in(r.File), r.Name, other.File, r.Name)
	}
}

// checkExplain checks x of r against the pattern that it names, which has these fields; other is
// nil where no pattern has that name.
func checkExplain(r *Rule, x Explain, other *Rule, names, fields []string) error {
	if other == nil {
		return fmt.Errorf("%s: explains an unknown pattern %q: %s", x.at.in(r.File), x.Pattern, suggest(x.Pattern, names))
	}
	for _, name := range x.Except {
		if known := evidenceNames(other.Evidence); !slices.Contains(known, name) {
			return fmt.Errorf("%s: %s has no evidence %q: %s", x.at.in(r.File), x.Pattern, name, suggest(name, known))
		}
	}
	for _, field := range slices.Concat(x.Theirs, x.In, x.NotIn) {
		if !slices.Contains(fields, field) {
			return fmt.Errorf("%s: %s has no field %q: %s", x.at.in(r.File), x.Pattern, field, suggest(field, fields))
		}
	}
	return nil
}
