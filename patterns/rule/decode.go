package rule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"
)

// maxErrors is how many errors of one file are reported.
const maxErrors = 20

// decoder reads YAML nodes into a rule and collects what is wrong, each with
// its line. Checks that need the whole file wait in later.
type decoder struct {
	file  string
	errs  []error
	later []func()

	checked map[ottlText]bool // all OTTL compiled so far: parsing it is slow
}

// ottlText is OTTL text in one of its contexts.
type ottlText struct {
	text      string
	onMetrics bool
}

// setter reads one value.
type setter func(*yaml.Node)

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, fmt.Errorf("%s:%d: %s", d.file, n.Line, fmt.Sprintf(format, args...)))
	}
}

// finish runs the waiting checks, unless the file could not even be read.
func (d *decoder) finish() error {
	if len(d.errs) == 0 {
		for _, check := range d.later {
			check()
		}
	}
	return errors.Join(d.errs...)
}

// object reads a mapping whose keys are known.
func (d *decoder) object(n *yaml.Node, what string, keys map[string]setter) {
	d.each(n, what, func(key, value *yaml.Node) {
		set, ok := keys[key.Value]
		if !ok {
			d.fail(key, "unknown key %q in %s: %s", key.Value, what, suggest(key.Value, sortedKeys(keys)))
			return
		}
		set(value)
	})
}

// each visits the entries of a mapping in file order.
func (d *decoder) each(n *yaml.Node, what string, visit func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s must be a mapping of keys to values", what)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, twice := seen[key.Value]; twice {
			d.fail(key, "%q in %s is already set in line %d: remove one", key.Value, what, line)
			continue
		}
		seen[key.Value] = key.Line
		visit(key, n.Content[i+1])
	}
}

func (d *decoder) scalar(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.fail(n, "a single value is needed here (aliases are not supported)")
		return "", false
	}
	return n.Value, true
}

func (d *decoder) text(to *string) setter {
	return func(n *yaml.Node) { *to, _ = d.scalar(n) }
}

func (d *decoder) word(to *string, allowed ...string) setter {
	return func(n *yaml.Node) {
		s, ok := d.scalar(n)
		if ok && !slices.Contains(allowed, s) {
			d.fail(n, "%q is not allowed here: use one of %v", s, allowed)
		}
		*to = s
	}
}

func (d *decoder) integer(to *int, least int) setter {
	return func(n *yaml.Node) {
		s, ok := d.scalar(n)
		v, err := strconv.Atoi(s)
		if ok && (err != nil || v < least) {
			d.fail(n, "%q must be a whole number of at least %d", s, least)
		}
		*to = v
	}
}

func (d *decoder) number(to *float64) setter {
	return func(n *yaml.Node) {
		s, ok := d.scalar(n)
		v, err := strconv.ParseFloat(s, 64)
		if ok && (err != nil || !(v > 0) || v > 1e18) {
			d.fail(n, "%q must be a number above 0", s)
		}
		*to = v
	}
}

func (d *decoder) duration(to *time.Duration) setter {
	return func(n *yaml.Node) {
		s, ok := d.scalar(n)
		v, err := time.ParseDuration(s)
		if ok && (err != nil || v <= 0 || v > maxDuration) {
			d.fail(n, "%q must be a duration above 0 and at most %v: write 30s, 5m, 2h", s, maxDuration)
		}
		*to = v
	}
}

// strings reads one string or a list of strings.
func (d *decoder) strings(to *[]string) setter {
	return func(n *yaml.Node) {
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
	}
}

func (d *decoder) template(to *Template) setter {
	return func(n *yaml.Node) {
		s, ok := d.scalar(n)
		if !ok {
			return
		}
		t, err := ParseTemplate(s)
		if err != nil {
			d.fail(n, "%v", err)
		}
		*to = t
	}
}

func (d *decoder) expr(to *Expr, evidence *[]Evidence) setter {
	return func(n *yaml.Node) {
		s, ok := d.scalar(n)
		if !ok {
			return
		}
		e, err := ParseExpr(s)
		if err != nil {
			d.fail(n, "%v", err)
			return
		}
		*to = e
		d.later = append(d.later, func() {
			for _, name := range e.Names() {
				d.known(n, "evidence", name, evidenceNames(*evidence))
			}
		})
	}
}

// choice reads a template, or {by: field, cases: {value: template}, default: template}.
func (d *decoder) choice(to *Choice) setter {
	return func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode {
			d.template(&to.Default)(n)
			return
		}
		d.object(n, "a choice", map[string]setter{
			"by":      d.text(&to.By),
			"default": d.template(&to.Default),
			"cases": func(cases *yaml.Node) {
				d.each(cases, "cases", func(key, value *yaml.Node) {
					one := Case{Value: key.Value}
					d.template(&one.Text)(value)
					to.Cases = append(to.Cases, one)
				})
			},
		})
		if to.By == "" || to.Default.Text == "" {
			d.fail(n, "a choice needs by (a field) and default (for all other values)")
		}
	}
}

// known fails unless name is one of names.
func (d *decoder) known(n *yaml.Node, what, name string, names []string) {
	if !slices.Contains(names, name) {
		d.fail(n, "there is no %s %q: %s", what, name, suggest(name, names))
	}
}
