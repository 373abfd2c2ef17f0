package rule

import (
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"
)

// evidence reads pieces of evidence by name.
func (d *decoder) evidence(to *[]Evidence, r *Rule) value {
	describe := d.oneEvidence(&Evidence{}, r)
	return value{kind: "names, each with evidence", section: describe.section, keys: describe.keys, read: func(n *yaml.Node) {
		d.each(n, "evidence", func(key, value *yaml.Node) {
			if !isName(key.Value) || slices.Contains([]string{"and", "or", "not"}, key.Value) {
				d.fail(key, "%q is not an evidence name: use lower-case letters, digits and _", key.Value)
			}
			e := &Evidence{Name: key.Value, Operator: Occur, Occurs: Occurs{Count: 1, Values: 1}, at: at(key)}
			d.oneEvidence(e, r).read(value)
			*to = append(*to, *e)
		})
		if len(*to) > maxEvidence {
			d.fail(n, "more than %d pieces of evidence: split the pattern", maxEvidence)
		}
	}}
}

func (d *decoder) oneEvidence(e *Evidence, r *Rule) value {
	operators := d.operators(e, r)
	keys := append([]key{
		{"logs", d.strings("event name", &e.Logs).then(d.mentions(EventName, &e.Logs)), "", "log records it looks at; these or metrics"},
		{"metrics", d.strings("metric name", &e.Metrics).then(d.mentions(MetricName, &e.Metrics)), "", "data points it looks at"},
		{"where", d.ottlCondition("where", &e.Where, e), "", "which of them; all without it"},
		{"value", d.ottlValue("value", &e.Value, e), "", "what `changes` compares; a metric's own value without it"},
		{"fields", d.fields(&e.Fields), "", "this evidence's own fields, in place of those of the pattern"},
		{"match", d.fieldNames(&e.Match, r), "", "joins a fault by these fields instead of the key; cannot begin one"},
		{"follows", d.follows(e, r), "", "only what comes soon after other evidence counts"},
		{"first_of", d.otherEvidence(e, r, &e.FirstOf), "", "it holds only where none of this evidence came before it"},
		{"soon_before", d.soonBefore(e, r), "", "it holds only where it came soon before the first of other evidence, which holds itself"},
		{"lead", d.lead(e), "", "it holds only where its first thing (`by`) is so far ahead of the next"},
		{"newest", d.flag(&e.Newest), "", "of each process or thing the newest record alone counts, and takes the place of those before it that are trusted no more: it says how that is now, and not when the fault began"},
		{"except", d.excepted(e, r), "", "it holds only while none of this evidence does"},
		{"unsaid", d.unsaid(e, r), "", "a record counts only while its process has none of this evidence, which may be trusted less: what a process says of itself. Another record of the same evidence then leads"},
		{"until", d.until(e, r), "", "a record counts no more once its thing has ended, before other evidence came: what is over then cannot be why"},
		{"believed", d.flag(&e.Believed), "", "what a process claims counts although it is trusted less than the verdict, and may name whose fault it is: a process that speaks of itself. No verdict is full by it"},
		{"accuses", d.fieldNames(&e.Accuses, r), "", "fields with ranks: it is sure whose fault it is, that of these ranks and of the process, GPU and machine on its record; nothing that accuses or names another explains the verdict"},
		{"hides", d.fieldNames(&e.Hides, r), "", "fields that the verdict does not name while it holds: it accuses nobody"},
		{"quotes", d.fieldNames(&e.Quotes, r), "", "fields in which the thing that the verdict names speaks of itself: the headline shows them although the record is trusted less, if `match` joins it to what names the culprit. They make nothing sure"},
		{"shows", d.template(&e.Shows, r, "evidence "+e.Name), "", "what it shows, in plain words; without it the evidence decides and is not listed"},
		{"absent", d.template(&e.Absent, r, "evidence "+e.Name), "", "what a verdict lists as not observed while it is not seen"},
	}, operators...)
	return d.object("", "A piece of evidence", fmt.Sprintf("evidence %s", e.Name), keys).then(func(n *yaml.Node) {
		if operators := d.given(n, operators); len(operators) > 1 {
			d.failAt(e.at, "evidence %s has more than one operator (%s, %s): make it two pieces of evidence", e.Name, operators[0], operators[1])
		}
	})
}

// given returns which of keys a mapping has.
func (d *decoder) given(n *yaml.Node, keys []key) (names []string) {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if slices.ContainsFunc(keys, func(k key) bool { return k.name == n.Content[i].Value }) {
			names = append(names, n.Content[i].Value)
		}
	}
	return names
}

// operators are keys that exclude each other: evidence uses at most one of them.
func (d *decoder) operators(e *Evidence, r *Rule) []key {
	by := key{"by", d.fieldNames(&e.Occurs.By, r), "", "each value of these fields is one thing, which counts by itself"}
	followed := key{"by", by.value, "", "each value of these fields is one thing, which is followed by itself. On logs needed; on metrics each data point's attributes are a series of their own"}
	values := key{"values", d.integer(&e.Occurs.Values, 1), "1", "with `by`: how many things must get there"}
	within := key{"within", d.duration(&e.Occurs.Within), "", "the window; the pattern's within without it"}
	operator := func(op Operator, doc string, keys ...key) key {
		v := d.object("operator", "`"+string(op)+"`", string(op), keys).then(func(*yaml.Node) { e.Operator = op })
		return key{string(op), v, "", doc}
	}
	return []key{
		operator(Occur, "each record counts: so many in a window. Once, when there is no operator",
			key{"count", d.number(&e.Occurs.Count), "1", "how many"}, within, by, values),
		operator(Increase, "the rises of a counter add up in a window",
			key{"amount", d.number(&e.Occurs.Count), "1", "by how much"}, within, by, values),
		operator(Change, "each transition of a value counts: so many in a window",
			key{"count", d.number(&e.Occurs.Count), "1", "how many"}, within, followed, values),
		operator(Stay, "a condition that held for a time",
			key{"while", d.ottlCondition("while", &e.Stays.While, e), needed, "what must hold"},
			key{"for", d.duration(&e.Stays.For), needed, "how long"},
			key{"max_gap", d.duration(&e.Stays.MaxGap), "", "samples further apart break it; without it a state lasts until a record says otherwise"},
			followed, values),
		operator(BelowMedian, "the rate of a counter, or the mean of a gauge, far below the median of its group",
			key{"of", d.fieldNames(&e.Median.Of, r), needed, "series with equal values of these fields are a group"},
			key{"ratio", d.number(&e.Median.Ratio), needed, "which part of the median it lies below"},
			key{"over", d.duration(&e.Median.Over), needed, "the window of the rate or mean"},
			key{"min_members", d.integer(&e.Median.MinMembers, 2), "3", "a smaller group is not judged"},
			key{"for", d.duration(&e.Stays.For), "", "how long it must lie there"}),
	}
}

func (d *decoder) follows(e *Evidence, r *Rule) value {
	f := &Follows{}
	names := d.otherEvidence(e, r, &f.Evidence)
	return d.object("mapping", "`follows`", "follows", []key{
		{"evidence", names, needed, "one of them must have come before"},
		{"within", d.duration(&f.Within), needed, "how long before at most"},
	}).then(func(*yaml.Node) { e.Follows = f })
}

func (d *decoder) lead(e *Evidence) value {
	l := &Lead{}
	return d.object("mapping", "`lead`", "lead", []key{
		{"least", d.duration(&l.Least), needed, "by so much at least"},
		{"times", d.integer(&l.Times, 1), "", "and by so many times what lies between the next and the last within the window"},
	}).then(func(n *yaml.Node) {
		e.Lead = l
		d.afterwards(func() {
			if len(e.Occurs.By) == 0 {
				d.fail(n, "evidence %s: lead needs occurs with by, which says what can be ahead", e.Name)
			}
		})
	})
}

// excepted reads evidence that must not hold.
func (d *decoder) excepted(e *Evidence, r *Rule) value {
	return d.otherEvidence(e, r, &e.Except).then(func(n *yaml.Node) { d.noCircle(n, e, r) })
}

// unsaid reads evidence that the process of a mark must not have.
func (d *decoder) unsaid(e *Evidence, r *Rule) value {
	return d.otherEvidence(e, r, &e.Unsaid).then(func(n *yaml.Node) { d.noCircle(n, e, r) })
}

// until reads what ends the thing of a mark.
func (d *decoder) until(e *Evidence, r *Rule) value {
	u := &Until{}
	return d.object("mapping", "`until`", "until", []key{
		{"evidence", d.otherEvidence(e, r, &u.Evidence), needed, "it has ended where one of these came after the record"},
		{"by", d.fieldNames(&u.By, r), needed, "of the same value of these fields"},
		{"before", d.otherEvidence(e, r, &u.Before), needed, "and before the first of these"},
	}).then(func(*yaml.Node) { e.Until = u })
}

// noCircle refuses evidence that holds or not by way of itself.
func (d *decoder) noCircle(n *yaml.Node, e *Evidence, r *Rule) {
	d.afterwards(func() {
		reached := e.restsOn()
		for i := 0; i < len(reached); i++ {
			at := slices.IndexFunc(r.Evidence, func(o Evidence) bool { return o.Name == reached[i] })
			if at >= 0 && !slices.Contains(reached[:i], reached[i]) {
				reached = append(reached, r.Evidence[at].restsOn()...)
			}
		}
		if slices.Contains(reached, e.Name) {
			d.fail(n, "evidence %s depends, by way of others, on itself", e.Name)
		}
	})
}

// restsOn is evidence that must hold, or must not, for e to hold.
func (e *Evidence) restsOn() []string {
	on := slices.Concat(e.Except, e.Unsaid)
	if e.SoonBefore != nil {
		on = append(on, e.SoonBefore.Evidence...)
	}
	return on
}

func (d *decoder) soonBefore(e *Evidence, r *Rule) value {
	f := &Follows{}
	names := d.otherEvidence(e, r, &f.Evidence)
	return d.object("mapping", "`soon_before`", "soon_before", []key{
		{"evidence", names, needed, "it must have come before the first of them"},
		{"within", d.duration(&f.Within), needed, "how long before at most"},
	}).then(func(n *yaml.Node) {
		e.SoonBefore = f
		d.noCircle(n, e, r)
	})
}

// otherEvidence reads names of evidence of r other than e.
func (d *decoder) otherEvidence(e *Evidence, r *Rule, to *[]string) value {
	return d.strings("evidence", to).then(func(n *yaml.Node) {
		d.afterwards(func() {
			for i, name := range *to {
				d.known(item(n, i), "evidence", name, others(r, e.Name))
			}
		})
	})
}

// others returns the evidence of r except the one called name.
func others(r *Rule, name string) []string {
	return slices.DeleteFunc(evidenceNames(r.Evidence), func(s string) bool { return s == name })
}

func evidenceNames(evidence []Evidence) []string {
	return namesOf(evidence, func(e Evidence) string { return e.Name })
}
