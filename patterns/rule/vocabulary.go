package rule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Vocabulary is the names that a rule can read without declaring them. A name that ends in
// * stands for all names that begin so.
type Vocabulary struct {
	Events, Metrics, Attributes []string
}

// NameKind says which names of a vocabulary a name is one of.
type NameKind string

// The kinds of names.
const (
	EventName     NameKind = "event"
	MetricName    NameKind = "metric"
	AttributeName NameKind = "attribute"
)

// mention is a name that a pattern file reads, and where it stands.
type mention struct {
	kind NameKind
	name string
	at   position
}

// Declared are names that a rule reads and tracecore does not know, each with what it is.
type Declared struct {
	Events, Metrics, Attributes map[string]string
}

// Check fails for each name that a rule reads and that neither v nor the rule itself
// knows: most of them are typos, and a rule that reads one would wait for ever.
func (v *Vocabulary) Check(rules []Rule) error {
	var errs []error
	for i := range rules {
		r := &rules[i]
		known := v.With(rules[i : i+1])
		for _, m := range r.reads {
			if err := known.CheckName(m.kind, m.name); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.at.in(r.File), err))
			}
		}
	}
	return errors.Join(errs...)
}

// With returns v with the names that rules declare.
func (v *Vocabulary) With(rules []Rule) *Vocabulary {
	all := *v
	for i := range rules {
		d := &rules[i].Declares
		all.Events = slices.Concat(all.Events, slices.Sorted(maps.Keys(d.Events)))
		all.Metrics = slices.Concat(all.Metrics, slices.Sorted(maps.Keys(d.Metrics)))
		all.Attributes = slices.Concat(all.Attributes, slices.Sorted(maps.Keys(d.Attributes)))
	}
	return &all
}

// CheckName fails unless name is one of v, and says which was meant, and how a pattern file
// declares one of others.
func (v *Vocabulary) CheckName(kind NameKind, name string) error {
	known := v.of(kind)
	if isAmong(name, known) {
		return nil
	}
	declare := fmt.Sprintf("declare it if others send it, declares: {%ss: {%s: what it is}}", kind, name)
	if near := nearest(name, known, max(2, len(name)/4)); near != "" {
		declare = fmt.Sprintf("did you mean %q? Or %s", near, declare)
	}
	return fmt.Errorf("no %s %q is known: %s", kind, name, declare)
}

func (v *Vocabulary) of(kind NameKind) []string {
	switch kind {
	case EventName:
		return v.Events
	case MetricName:
		return v.Metrics
	default:
		return v.Attributes
	}
}

// isAmong reports whether name is one of names, or begins as one that ends in *.
func isAmong(name string, names []string) bool {
	return slices.ContainsFunc(names, func(known string) bool {
		prefix, family := strings.CutSuffix(known, "*")
		return known == name || family && strings.HasPrefix(name, prefix)
	})
}

// declares reads the names that a site's own senders bring.
func (d *decoder) declares(to *Declared) value {
	names := func(m *map[string]string) value {
		*m = map[string]string{}
		return value{kind: "names, each with text", read: func(n *yaml.Node) {
			d.each(n, "declares", func(name, what *yaml.Node) {
				text, ok := d.scalar(what)
				if ok && strings.TrimSpace(text) == "" {
					d.fail(what, "%s is declared without saying what it is: say who sends it and what it means", name.Value)
				}
				(*m)[name.Value] = text
			})
		}}
	}
	return d.object("mapping", "`declares`", "declares", []key{
		{"events", names(&to.Events), "", "event names of log records, each with who sends it"},
		{"metrics", names(&to.Metrics), "", "metric names, each with who sends it"},
		{"attributes", names(&to.Attributes), "", "attributes, each with what it says"},
	})
}

// mentions notes names that stand in a value or a list.
func (d *decoder) mentions(kind NameKind, names *[]string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		for i, name := range *names {
			d.reads = append(d.reads, mention{kind, name, at(item(n, i))})
		}
	}
}

// mentionsIn notes the attributes that OTTL text at n reads.
func (d *decoder) mentionsIn(n *yaml.Node, text string) {
	from := at(n)
	for _, found := range attributePath.FindAllStringSubmatch(text, -1) {
		from = d.find(`"`+found[1], from)
		d.reads = append(d.reads, mention{AttributeName, found[1], from})
	}
}

// find returns where text stands in the file, at or after a place: text of several lines
// begins elsewhere than its value. The place itself when it is written in another way.
func (d *decoder) find(text string, from position) position {
	for i := from.line - 1; i < len(d.lines) && i < from.line+maxOTTLBytes; i++ {
		line, skip := d.lines[i], 0
		if i == from.line-1 {
			skip = min(from.column, len(line))
		}
		if at := strings.Index(line[skip:], text); at >= 0 {
			return position{i + 1, skip + at + 2}
		}
	}
	return from
}
