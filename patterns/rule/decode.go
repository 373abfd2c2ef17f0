package rule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// maxErrors is how many errors of one file are reported.
const maxErrors = 20

// decoder reads YAML nodes into a rule and collects what is wrong, each with
// its place. Checks that need the whole file wait in later.
type decoder struct {
	file string
	errs []error
	// failures is how many errors there are, those beyond maxErrors too.
	failures int
	later    []func()
	lines    []string          // of the file
	reads    []mention         // names of events, metrics and attributes so far
	values   Values            // of parameters
	named    []named           // conditions
	used     map[string]bool   // parameters and conditions that something uses
	checked  map[ottlText]bool // all OTTL so far: what is wrong with it is told once
}

// ottlText is OTTL text in one of its contexts.
type ottlText struct {
	text      string
	onMetrics bool
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.failAt(at(n), format, args...)
}

func (d *decoder) failAt(p position, format string, args ...any) {
	d.failures++
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, fmt.Errorf("%s: %s", p.in(d.file), fmt.Sprintf(format, args...)))
	}
}

func (d *decoder) afterwards(check func()) { d.later = append(d.later, check) }

// finish runs the waiting checks, unless the file could not even be read.
func (d *decoder) finish() error {
	if len(d.errs) == 0 {
		for _, check := range d.later {
			check()
		}
	}
	return errors.Join(d.errs...)
}

func (d *decoder) scalar(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.fail(n, "a single value is needed here (aliases are not supported)")
		return "", false
	}
	return n.Value, true
}

// single is a value of one scalar, which set takes over or says what is wrong.
func (d *decoder) single(kind string, set func(n *yaml.Node, text string)) value {
	return value{kind: kind, read: func(n *yaml.Node) {
		if text, ok := d.scalar(n); ok {
			set(n, text)
		}
	}}
}

func (d *decoder) text(kind string, to *string) value {
	return d.single(kind, func(_ *yaml.Node, text string) { *to = text })
}

func (d *decoder) name(to *string) value {
	return d.single("name", func(n *yaml.Node, text string) {
		if *to = text; text != "" && !isName(text) {
			d.fail(n, "name %q: use lower-case letters, digits and _", text)
		}
	})
}

func (d *decoder) word(to *string, allowed ...string) value {
	return d.single("`"+strings.Join(allowed, "` or `")+"`", func(n *yaml.Node, text string) {
		if *to = text; !slices.Contains(allowed, text) {
			d.fail(n, "%q is not allowed here: use one of %v", text, allowed)
		}
	})
}

func (d *decoder) flag(to *bool) value {
	var text string
	return d.word(&text, "true", "false").then(func(*yaml.Node) { *to = text == "true" })
}

func (d *decoder) integer(to *int, least int) value {
	return d.single(fmt.Sprintf("whole number from %d", least), func(n *yaml.Node, text string) {
		text, whole := d.fill(n, text, inText)
		if !whole {
			return
		}
		v, err := strconv.Atoi(text)
		if *to = v; err != nil || v < least {
			d.fail(n, "%q must be a whole number of at least %d", text, least)
		}
	})
}

func (d *decoder) number(to *float64) value {
	return d.single("number above 0", func(n *yaml.Node, text string) {
		text, whole := d.fill(n, text, inText)
		if !whole {
			return
		}
		v, err := strconv.ParseFloat(text, 64)
		if *to = v; err != nil || !(v > 0) || v > 1e18 {
			d.fail(n, "%q must be a number above 0", text)
		}
	})
}

func (d *decoder) duration(to *time.Duration) value {
	return d.single("duration", func(n *yaml.Node, text string) {
		text, whole := d.fill(n, text, inText)
		if !whole {
			return
		}
		v, err := time.ParseDuration(text)
		if *to = v; err != nil || v <= 0 || v > maxDuration {
			d.fail(n, "%q must be a duration above 0 and at most %v: write 30s, 5m, 2h", text, maxDuration)
		}
	})
}

// strings reads one string or a list of strings.
func (d *decoder) strings(kind string, to *[]string) value {
	return value{kind: kind + ", or a list", read: func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			if s, ok := d.scalar(n); ok {
				*to = []string{s}
			}
			return
		}
		if len(n.Content) == 0 {
			d.fail(n, "an empty list: name at least one")
		}
		for _, item := range n.Content {
			if s, ok := d.scalar(item); ok {
				*to = append(*to, s)
			}
		}
	}}
}

// fieldName reads the name of a field of r.
func (d *decoder) fieldName(to *string, r *Rule) value {
	return d.text("field", to).then(func(n *yaml.Node) {
		d.afterwards(func() { d.known(n, "field", *to, r.FieldNames()) })
	})
}

// fieldNames reads names of fields of r.
func (d *decoder) fieldNames(to *[]string, r *Rule) value {
	return d.strings("field", to).then(func(n *yaml.Node) {
		d.afterwards(func() {
			for i, name := range *to {
				d.known(item(n, i), "field", name, r.FieldNames())
			}
		})
	})
}

// item is the i-th member of a list, or n itself where it is none.
func item(n *yaml.Node, i int) *yaml.Node {
	if i < len(n.Content) {
		return n.Content[i]
	}
	return n
}

// template reads text with fields of r; whose says of what.
func (d *decoder) template(to *Template, r *Rule, whose string) value {
	return d.single("template", func(n *yaml.Node, text string) {
		text, _ = d.fill(n, text, inText)
		t, err := ParseTemplate(text)
		if err != nil {
			d.fail(n, "%v", err)
			return
		}
		*to = t
		d.afterwards(func() {
			names := r.FieldNames()
			for _, field := range t.Fields() {
				if !computed(field) && !slices.Contains(names, field) {
					d.fail(n, "%s uses {%s}, which is no field: %s", whose, field, suggest(field, names))
				}
			}
			for _, name := range t.Conditions() {
				d.known(n, "evidence", name, append(evidenceNames(r.Evidence), Full))
			}
		})
	})
}

func (d *decoder) expr(to *Expr, evidence *[]Evidence) value {
	return d.single("expression", func(n *yaml.Node, text string) {
		e, err := ParseExpr(text)
		if err != nil {
			d.fail(n, "%v", err)
			return
		}
		*to = e
		d.afterwards(func() {
			for _, name := range e.Names() {
				d.known(n, "evidence", name, evidenceNames(*evidence))
			}
		})
	})
}

// ottlValue reads an OTTL value of the records of e.
func (d *decoder) ottlValue(what string, to *string, e *Evidence) value {
	return d.ottl("OTTL value", what, to, e, inValue, checkValue)
}

// ottlCondition reads an OTTL condition on the records of e.
func (d *decoder) ottlCondition(what string, to *string, e *Evidence) value {
	return d.ottl("OTTL condition", what, to, e, inCondition, checkCondition)
}

func (d *decoder) ottl(kind, what string, to *string, e *Evidence, in place, check func(onMetrics bool, text string) error) value {
	return d.text(kind, to).then(func(n *yaml.Node) {
		d.mentionsIn(n, *to)
		*to, _ = d.fill(n, *to, in)
		d.afterwards(func() { d.compile(at(n), what, *to, e, check) })
	})
}

// compile fails unless text is OTTL for the records of e.
func (d *decoder) compile(p position, what, text string, e *Evidence, check func(onMetrics bool, text string) error) {
	checked := ottlText{text: text, onMetrics: e.OnMetrics()}
	if text == "" || d.checked[checked] {
		return
	}
	d.checked[checked] = true
	if err := check(e.OnMetrics(), text); err != nil {
		d.failAt(p, "%s of evidence %s is not valid OTTL: %v: see the OTTL grammar, paths are attributes[\"…\"] and resource.attributes[\"…\"]", what, e.Name, err)
	}
}

// known fails unless name is one of names.
func (d *decoder) known(n *yaml.Node, what, name string, names []string) {
	if !slices.Contains(names, name) {
		d.fail(n, "there is no %s %q: %s", what, name, suggest(name, names))
	}
}
