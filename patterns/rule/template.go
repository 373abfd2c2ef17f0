package rule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Template is text with {field} in it. {field: one|more} is the word "one" where the field
// is a single rank, thing or text, and "more" where it is a list. {field} ranks is
// how many there are, with commas: 1,023 ranks; elsewhere {field: number} is, and
// {field: number error|errors} with its word: 1 error, 1,023 errors. {field: all rank|ranks}
// is the same where all are meant: both ranks, all 1,023 ranks. {field} bytes is
// a size in the largest unit that keeps it above 1: 77.7 GiB. Of the parts in
// [brackets], which | separates, the first counts whose fields all have a value, and, where
// it begins with "if EXPRESSION:", whose evidence was seen; none may. Outside of brackets a
// field without a value reads "unknown".
type Template struct {
	Text  string
	parts []part
	steps []step // of a remedy that is written as steps, instead of parts
}

// part is literal text, a field, or one of options.
type part struct {
	literal   string
	field     string
	counts    bool   // the field is how many ranks there are: {count} ranks
	sizes     bool   // the field is a number of bytes, and the word behind it is said with it
	all       bool   // it counts, and all are meant: both ranks, all 1,023 ranks
	one, more string // words for the field, instead of its value; behind it, where it counts
	options   []option
}

// option is a part of brackets.
type option struct {
	condition Expr // zero: none
	parts     []part
}

// Known is what a template is filled with.
type Known struct {
	// Field returns the value of a field.
	Field func(name string) (string, bool)
	// Holds reports whether evidence was seen; nil: none was. Full is a name of evidence
	// here: that the verdict is full.
	Holds func(name string) bool
}

// Full is the name under which a condition of a template asks whether the verdict is full.
const Full = "full"

// ParseTemplate parses text.
func ParseTemplate(text string) (Template, error) {
	p := templateParser{rest: text, whole: text}
	parts, err := p.parts(false)
	return Template{Text: text, parts: parts}, err
}

// templateParser reads text from its start on.
type templateParser struct{ rest, whole string }

// parts reads up to the end or, in brackets, up to what ends an option.
func (p *templateParser) parts(inside bool) ([]part, error) {
	special := "{}[]"
	if inside {
		special += "|"
	}
	var parts []part
	for p.rest != "" {
		at := strings.IndexAny(p.rest, special)
		if at < 0 {
			at = len(p.rest)
		}
		if at > 0 {
			if last := len(parts) - 1; last >= 0 && parts[last].isValue() {
				switch before := &parts[last]; {
				case strings.HasPrefix(p.rest, " ranks"):
					before.counts = true
				case strings.HasPrefix(p.rest, wordBytes) && !before.sizes:
					before.sizes, p.rest = true, p.rest[len(wordBytes):]
					continue
				}
			}
			parts = append(parts, part{literal: p.rest[:at]})
			p.rest = p.rest[at:]
			continue
		}
		var one part
		var err error
		switch c := p.rest[0]; {
		case c == '{':
			one, err = p.field()
		case c == '[' && !inside:
			one, err = p.options()
		case inside && (c == ']' || c == '|'):
			return parts, nil
		default:
			err = fmt.Errorf("stray %q in %q: brackets come in pairs and are not nested", p.rest[:1], p.whole)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, one)
	}
	return parts, nil
}

// field reads {name} or {name: one|more}.
func (p *templateParser) field() (part, error) {
	inner, after, found := strings.Cut(p.rest[1:], "}")
	name, words, worded := strings.Cut(inner, ":")
	if !found || !isName(name) {
		return part{}, fmt.Errorf("{%s is not a field: write {name}", inner)
	}
	p.rest = after
	if !worded {
		return part{field: name}, nil
	}
	words = strings.TrimSpace(words)
	if words == "number" {
		return part{field: name, counts: true}, nil
	}
	words, counts := strings.CutPrefix(words, "number ")
	words, all := strings.CutPrefix(words, "all ")
	one, more, two := strings.Cut(words, "|")
	if !two || strings.ContainsAny(one+more, "{[|]") || one+more == "" {
		return part{}, fmt.Errorf("{%s} has not two words: write {%s: waits|wait}, for one and for several", inner, name)
	}
	return part{field: name, one: one, more: more, counts: counts, all: all}, nil
}

// wordBytes behind a field makes it a size.
const wordBytes = " bytes"

// options reads [a|b|if seen: c].
func (p *templateParser) options() (part, error) {
	var options []option
	for p.rest = p.rest[1:]; ; p.rest = p.rest[1:] {
		var o option
		if after, conditional := strings.CutPrefix(p.rest, "if "); conditional {
			text, rest, found := strings.Cut(after, ":")
			condition, err := ParseExpr(text)
			if !found || err != nil {
				return part{}, fmt.Errorf("%q is no condition: write [if evidence: text]", "if "+text)
			}
			o.condition, p.rest = condition, rest
		}
		var err error
		if o.parts, err = p.parts(true); err != nil {
			return part{}, err
		}
		if p.rest == "" {
			return part{}, fmt.Errorf("a ] is missing in %q", p.whole)
		}
		options = append(options, o)
		if p.rest[0] == ']' {
			p.rest = p.rest[1:]
			return part{options: options}, nil
		}
	}
}

// Fields returns the fields t uses.
func (t Template) Fields() []string {
	names := fieldsOf(t.parts)
	for _, s := range t.steps {
		names = slices.Concat(names, s.text.Fields(), s.command.Fields(), s.target.Fields())
	}
	return names
}

func fieldsOf(parts []part) (names []string) {
	for _, p := range parts {
		if p.field != "" {
			names = append(names, p.field)
		}
		for _, o := range p.options {
			names = append(names, fieldsOf(o.parts)...)
		}
	}
	return names
}

// Conditions returns the evidence that t asks for.
func (t Template) Conditions() (names []string) {
	for _, s := range t.steps {
		names = slices.Concat(names, s.text.Conditions(), s.command.Conditions())
	}
	for _, p := range t.parts {
		for _, o := range p.options {
			if !o.condition.IsZero() {
				names = append(names, o.condition.Names()...)
			}
		}
	}
	return names
}

// Expand fills in values.
func (t Template) Expand(k Known) string {
	if len(t.steps) > 0 {
		return paragraph(t.Steps(k))
	}
	var b strings.Builder
	expand(&b, t.parts, k)
	return b.String()
}

func expand(b *strings.Builder, parts []part, k Known) {
	for _, p := range parts {
		b.WriteString(p.literal)
		if p.field != "" {
			b.WriteString(p.word(k))
		}
		at := slices.IndexFunc(p.options, func(o option) bool { return o.applies(k) })
		if at >= 0 {
			expand(b, p.options[at].parts, k)
		}
	}
}

// isValue reports whether a part is the value of a field.
func (p part) isValue() bool { return p.field != "" && p.one+p.more == "" }

func (p part) word(k Known) string {
	value, ok := k.Field(p.field)
	switch {
	case !ok && p.sizes:
		return "unknown" + wordBytes
	case !ok:
		return "unknown"
	case p.all:
		return p.allOf(value)
	case p.counts:
		return p.counted(value)
	case p.sizes:
		return verdict.Sized(value + wordBytes)
	case p.one+p.more == "":
		return value
	case isList(value):
		return p.more
	default:
		return p.one
	}
}

// counted is a number with commas, with its word where it has one.
func (p part) counted(value string) string {
	word := p.more
	if value == "1" {
		word = p.one
	}
	if isNumber(value) {
		value = verdict.Thousands(value)
	}
	return strings.TrimRight(value+" "+word, " ")
}

// allOf says that all of so many are meant.
func (p part) allOf(value string) string {
	if n, err := strconv.Atoi(value); err == nil && n > 1 {
		return verdict.All(n, p.more)
	}
	return p.counted(value)
}

// isList reports whether a value is several: a range of numbers, or texts with commas.
func isList(value string) bool {
	if strings.Contains(value, ", ") {
		return true
	}
	first, last, ranged := strings.Cut(value, "-")
	return ranged && isNumber(first) && isNumber(last)
}

func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func (o option) applies(k Known) bool {
	if !o.condition.IsZero() && (k.Holds == nil || !o.condition.Eval(k.Holds)) {
		return false
	}
	return !slices.ContainsFunc(fieldsOf(o.parts), func(name string) bool {
		_, ok := k.Field(name)
		return !ok
	})
}

// Choice is a template, or one per value of a field.
type Choice struct {
	By      string // field, "" for always Default
	Cases   []Case
	Default Template
	Else    *Choice // instead of Default, where another field decides then
}

// Case is the template for one value.
type Case struct {
	Value string
	Text  Template
}

// Pick returns the template for the values at hand.
func (c Choice) Pick(k Known) Template {
	if value, ok := k.Field(c.By); c.By != "" && ok {
		for _, one := range c.Cases {
			if one.Value == value {
				return one.Text
			}
		}
	}
	if c.Else != nil {
		return c.Else.Pick(k)
	}
	return c.Default
}

// All yields the templates, each with the value that picks it, "" where none does.
func (c Choice) All(yield func(value string, t Template) bool) {
	for _, one := range c.Cases {
		if !yield(one.Value, one.Text) {
			return
		}
	}
	if c.Else != nil {
		c.Else.All(yield)
	} else {
		yield("", c.Default)
	}
}

// Fields are the fields that decide, and those of the templates.
func (c Choice) Fields() []string {
	all := []string{c.By}
	if c.Else != nil {
		all = append(all, c.Else.Fields()...)
	}
	for _, t := range c.All {
		all = append(all, t.Fields()...)
	}
	return all
}

// Expand picks the template and fills in the values.
func (c Choice) Expand(k Known) string { return c.Pick(k).Expand(k) }
