package rule

import (
	"fmt"
	"strings"
)

// Template is text with {field} in it. A part in [brackets] is left out when a
// field in it has no value; outside of brackets such a field reads "unknown".
type Template struct {
	Text  string
	parts []part
}

// part is literal text or a field, inside optional group number group (0: none).
type part struct {
	literal string
	field   string
	group   int
}

// ParseTemplate parses text.
func ParseTemplate(text string) (Template, error) {
	t := Template{Text: text}
	group, groups := 0, 0
	for rest := text; rest != ""; {
		at := strings.IndexAny(rest, "{}[]")
		if at < 0 {
			at = len(rest)
		}
		if at > 0 {
			t.parts = append(t.parts, part{literal: rest[:at], group: group})
			rest = rest[at:]
			continue
		}
		switch {
		case rest[0] == '[' && group == 0:
			groups++
			group = groups
			rest = rest[1:]
		case rest[0] == ']' && group != 0:
			group = 0
			rest = rest[1:]
		case rest[0] == '{':
			name, after, found := strings.Cut(rest[1:], "}")
			if !found || !isName(name) {
				return Template{}, fmt.Errorf("{%s is not a field: write {name}", name)
			}
			t.parts = append(t.parts, part{field: name, group: group})
			rest = after
		default:
			return Template{}, fmt.Errorf("stray %q in %q: brackets come in pairs and are not nested", rest[:1], text)
		}
	}
	if group != 0 {
		return Template{}, fmt.Errorf("a ] is missing in %q", text)
	}
	return t, nil
}

// Fields returns the fields t uses.
func (t Template) Fields() []string {
	var names []string
	for _, p := range t.parts {
		if p.field != "" {
			names = append(names, p.field)
		}
	}
	return names
}

// Expand fills in the values that value returns.
func (t Template) Expand(value func(field string) (string, bool)) string {
	lacking := map[int]bool{}
	for _, p := range t.parts {
		if p.field != "" {
			if _, ok := value(p.field); !ok {
				lacking[p.group] = true
			}
		}
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.group != 0 && lacking[p.group] {
			continue
		}
		b.WriteString(p.literal)
		if p.field == "" {
			continue
		}
		v, ok := value(p.field)
		if !ok {
			v = "unknown"
		}
		b.WriteString(v)
	}
	return b.String()
}

// Choice is a template, or one per value of a field.
type Choice struct {
	By      string // field, "" for always Default
	Cases   []Case
	Default Template
}

// Case is the template for one value.
type Case struct {
	Value string
	Text  Template
}

// Pick returns the template for the values at hand.
func (c Choice) Pick(value func(field string) (string, bool)) Template {
	if v, ok := value(c.By); c.By != "" && ok {
		for _, one := range c.Cases {
			if one.Value == v {
				return one.Text
			}
		}
	}
	return c.Default
}
