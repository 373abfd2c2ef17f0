package rule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Bounds of one file.
const (
	maxFileBytes = 1 << 20
	maxEvidence  = 64 // one bit each
	maxFields    = 64
	maxDuration  = 7 * 24 * time.Hour
)

// Parse reads one pattern file; name is for messages.
func Parse(name string, content []byte) (Rule, error) {
	if len(content) > maxFileBytes {
		return Rule{}, fmt.Errorf("%s: %d bytes, a pattern file has at most %d", name, len(content), maxFileBytes)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return Rule{}, fmt.Errorf("%s: %w: correct the YAML", name, err)
	}
	if len(document.Content) == 0 {
		return Rule{}, fmt.Errorf("%s:1: the file is empty: start with id, name and summary", name)
	}
	parsers, err := NewParsers()
	if err != nil {
		return Rule{}, err
	}
	d := &decoder{file: name, checked: map[ottlText]bool{}}
	r := d.rule(document.Content[0])
	d.check(document.Content[0], &r, &parsers)
	if err := d.finish(); err != nil {
		return Rule{}, err
	}
	r.setDefaults()
	return r, nil
}

func (d *decoder) rule(n *yaml.Node) Rule {
	r := Rule{File: d.file}
	onExpiry := string(Forget)
	d.object(n, "a pattern file", map[string]setter{
		"id":        d.integer(&r.ID, 1),
		"name":      d.text(&r.Name),
		"summary":   d.text(&r.Summary),
		"detector":  d.text(&r.Detector),
		"fields":    d.fields(&r.Fields),
		"key":       d.fieldNames(&r.Key, &r),
		"culprit":   d.fieldNames(&r.Culprit, &r),
		"evidence":  d.evidence(&r.Evidence, &r),
		"resolves":  d.evidence(&r.Resolves, &r),
		"unless":    d.unless(&r),
		"full":      d.expr(&r.Full, &r.Evidence),
		"partial":   d.expr(&r.Partial, &r.Evidence),
		"within":    d.duration(&r.Within),
		"expires":   d.duration(&r.Expires),
		"on_expiry": d.word(&onExpiry, string(Forget), string(Resolve)),
		"explains":  d.explains(&r),
		"headline":  d.choice(&r.Headline),
		"remedy":    d.choice(&r.Remedy),
		"severity":  d.choice(&r.Severity),
	})
	r.OnExpiry = OnExpiry(onExpiry)
	return r
}

func (d *decoder) fields(to *[]Field) setter {
	return func(n *yaml.Node) {
		d.each(n, "fields", func(key, value *yaml.Node) {
			if !isName(key.Value) {
				d.fail(key, "%q is not a field name: use lower-case letters, digits and _", key.Value)
			}
			f := Field{Name: key.Value, line: value.Line}
			d.text(&f.Expr)(value)
			*to = append(*to, f)
		})
	}
}

// fieldNames reads a list of names of fields of r.
func (d *decoder) fieldNames(to *[]string, r *Rule) setter {
	return func(n *yaml.Node) {
		d.strings(to)(n)
		d.later = append(d.later, func() {
			for _, name := range *to {
				d.known(n, "field", name, r.FieldNames())
			}
		})
	}
}

func (d *decoder) evidence(to *[]Evidence, r *Rule) setter {
	return func(n *yaml.Node) {
		d.each(n, "evidence", func(key, value *yaml.Node) {
			if !isName(key.Value) || slices.Contains([]string{"and", "or", "not"}, key.Value) {
				d.fail(key, "%q is not an evidence name: use lower-case letters, digits and _", key.Value)
			}
			*to = append(*to, d.oneEvidence(key, value, r))
		})
		if len(*to) > maxEvidence {
			d.fail(n, "more than %d pieces of evidence", maxEvidence)
		}
	}
}

func (d *decoder) oneEvidence(key, n *yaml.Node, r *Rule) Evidence {
	e := Evidence{Name: key.Value, Operator: Occur, Occurs: Occurs{Count: 1}, line: key.Line}
	operators := 0
	operator := func(op Operator, set func(*yaml.Node)) setter {
		return func(n *yaml.Node) {
			operators++
			e.Operator = op
			set(n)
		}
	}
	keys := d.operators(&e, r, operator)
	maps.Copy(keys, map[string]setter{
		"logs":    d.strings(&e.Logs),
		"metrics": d.strings(&e.Metrics),
		"where":   d.text(&e.Where),
		"value":   d.text(&e.Value),
		"fields":  d.fields(&e.Fields),
		"match":   d.fieldNames(&e.Match, r),
		"shows":   d.template(&e.Shows),
		"absent":  d.template(&e.Absent),
		"follows": d.follows(&e, r),
	})
	d.object(n, "evidence "+e.Name, keys)
	if operators > 1 {
		d.fail(key, "evidence %s has more than one operator: make it two pieces of evidence", e.Name)
	}
	return e
}

// operators returns the keys of the operators of e.
func (d *decoder) operators(e *Evidence, r *Rule, operator func(Operator, func(*yaml.Node)) setter) map[string]setter {
	return map[string]setter{
		"occurs": operator(Occur, func(n *yaml.Node) {
			d.object(n, "occurs", map[string]setter{
				"count": d.number(&e.Occurs.Count), "within": d.duration(&e.Occurs.Within),
				"distinct": d.fieldNames(&e.Occurs.Distinct, r),
			})
		}),
		"increases": operator(Increase, d.increases(e, r)),
		"changes": operator(Change, func(n *yaml.Node) {
			d.object(n, "changes", map[string]setter{
				"count": d.number(&e.Occurs.Count), "within": d.duration(&e.Occurs.Within),
			})
		}),
		"stays":        operator(Stay, d.stays(e)),
		"below_median": operator(BelowMedian, d.median(e, r)),
		"missing":      operator(Miss, d.missing(e, r)),
	}
}

// increases reads a rise: of all series of the fault together or, with distinct,
// of each of so many values by itself.
func (d *decoder) increases(e *Evidence, r *Rule) setter {
	return func(n *yaml.Node) {
		by, values := 1.0, 2
		d.object(n, "increases", map[string]setter{
			"by": d.number(&by), "within": d.duration(&e.Occurs.Within),
			"distinct": d.fieldNames(&e.Occurs.Distinct, r), "values": d.integer(&values, 1),
		})
		e.Occurs.Count = by
		if len(e.Occurs.Distinct) > 0 {
			e.Occurs.Count, e.Occurs.Each = float64(values), by
		}
	}
}

func (d *decoder) stays(e *Evidence) setter {
	return func(n *yaml.Node) {
		d.object(n, "stays", map[string]setter{
			"while": d.text(&e.Stays.While), "for": d.duration(&e.Stays.For), "max_gap": d.duration(&e.Stays.MaxGap),
		})
		if e.Stays.While == "" || e.Stays.For == 0 {
			d.fail(n, "stays needs while (a condition) and for (a duration)")
		}
	}
}

func (d *decoder) median(e *Evidence, r *Rule) setter {
	return func(n *yaml.Node) {
		e.Median.MinMembers = 3
		d.object(n, "below_median", map[string]setter{
			"of": d.fieldNames(&e.Median.Of, r), "ratio": d.number(&e.Median.Ratio), "over": d.duration(&e.Median.Over),
			"min_members": d.integer(&e.Median.MinMembers, 2),
			"for":         d.duration(&e.Stays.For), "max_gap": d.duration(&e.Stays.MaxGap),
		})
		if len(e.Median.Of) == 0 || e.Median.Ratio == 0 || e.Median.Over == 0 {
			d.fail(n, "below_median needs of (the fields of a group), ratio and over (the window of the rate)")
		}
	}
}

func (d *decoder) missing(e *Evidence, r *Rule) setter {
	return func(n *yaml.Node) {
		d.object(n, "missing", map[string]setter{
			"after": d.text(&e.Missing.After), "for": d.duration(&e.Missing.For),
		})
		if e.Missing.For == 0 {
			d.fail(n, "missing needs after (evidence) and for (a duration)")
		}
		d.later = append(d.later, func() { d.known(n, "evidence", e.Missing.After, d.others(r, e.Name)) })
	}
}

func (d *decoder) follows(e *Evidence, r *Rule) setter {
	return func(n *yaml.Node) {
		e.Follows = &Follows{}
		d.object(n, "follows", map[string]setter{
			"evidence": d.strings(&e.Follows.Evidence), "within": d.duration(&e.Follows.Within),
		})
		if len(e.Follows.Evidence) == 0 || e.Follows.Within == 0 {
			d.fail(n, "follows needs evidence and within")
		}
		d.later = append(d.later, func() {
			for _, name := range e.Follows.Evidence {
				d.known(n, "evidence", name, d.others(r, e.Name))
			}
		})
	}
}

func (d *decoder) unless(r *Rule) setter {
	return func(n *yaml.Node) {
		for _, item := range d.items(n, "unless") {
			u := Unless{}
			d.object(item, "unless", map[string]setter{
				"evidence": d.text(&u.Evidence), "before": d.text(&u.Before), "within": d.duration(&u.Within),
			})
			if u.Within == 0 {
				d.fail(item, "unless needs evidence, before and within")
			}
			d.later = append(d.later, func() {
				d.known(item, "evidence", u.Evidence, evidenceNames(r.Evidence))
				d.known(item, "evidence", u.Before, evidenceNames(r.Evidence))
			})
			r.Unless = append(r.Unless, u)
		}
	}
}

func (d *decoder) explains(r *Rule) setter {
	return func(n *yaml.Node) {
		for _, item := range d.items(n, "explains") {
			x := Explain{Within: 5 * time.Minute, line: item.Line}
			var on []string
			d.object(item, "explains", map[string]setter{
				"pattern": d.text(&x.Pattern), "on": d.strings(&on), "within": d.duration(&x.Within),
			})
			if x.Pattern == "" || len(on) == 0 {
				d.fail(item, "explains needs pattern and on (the fields both share)")
			}
			for _, field := range on {
				mine, theirs, renamed := strings.Cut(field, "=")
				if !renamed {
					theirs = mine
				}
				x.Mine, x.Theirs = append(x.Mine, mine), append(x.Theirs, theirs)
			}
			d.later = append(d.later, func() {
				for _, field := range x.Mine {
					d.known(item, "field", field, r.FieldNames())
				}
			})
			r.Explains = append(r.Explains, x)
		}
	}
}

func (d *decoder) items(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, "%s must be a list", what)
		return nil
	}
	return n.Content
}

// others returns the evidence of r except the one called name.
func (d *decoder) others(r *Rule, name string) []string {
	return slices.DeleteFunc(evidenceNames(r.Evidence), func(s string) bool { return s == name })
}

func evidenceNames(evidence []Evidence) []string {
	names := make([]string, 0, len(evidence))
	for i := range evidence {
		names = append(names, evidence[i].Name)
	}
	return names
}
