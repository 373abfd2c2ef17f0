// Package attributes collects every attribute that a component emits or a
// pattern reads into the one table that operators alert on, ATTRIBUTES.md.
package attributes

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Attribute is one row of the table.
type Attribute struct {
	Name, Type, Unit, Description string
	Emitters                      []string // components, by type
	Consumers                     []string // patterns, by name
}

// Table is the attributes by name.
type Table map[string]*Attribute

// Collect builds the table from what emitters declare in a source tree and the rules. An
// attribute with two types, or one that a rule reads and nobody declares, is an error
// that says where to write it.
func Collect(tree fs.FS, rules []rule.Rule) (Table, error) {
	table := Table{}
	emitters, err := readAll(tree)
	if err != nil {
		return nil, err
	}
	for i := range emitters {
		emitted := emitters[i].emitted()
		for _, name := range slices.Sorted(maps.Keys(emitted)) {
			if err := table.add(name, emitted[name], emitters[i].Type); err != nil {
				return nil, fmt.Errorf("%s: %w", emitters[i].Type, err)
			}
		}
	}
	for i := range rules {
		if err := table.addRule(&rules[i]); err != nil {
			return nil, err
		}
	}
	return table, nil
}

func (t Table) add(name string, d described, emitter string) error {
	a := t[name]
	if a == nil {
		a = &Attribute{Name: name, Type: d.Type, Unit: unit(name), Description: strings.TrimSuffix(d.Description, ".")}
		t[name] = a
	}
	if a.Type != d.Type {
		return fmt.Errorf("attribute %s is %s here and %s in %s: one name has one type", name, d.Type, a.Type, strings.Join(a.Emitters, ", "))
	}
	if !slices.Contains(a.Emitters, emitter) {
		a.Emitters = append(a.Emitters, emitter)
		slices.Sort(a.Emitters)
	}
	return nil
}

func (t Table) addRule(r *rule.Rule) error {
	for _, name := range r.Attributes() {
		a := t[name]
		if a == nil {
			return fmt.Errorf("%s: attribute %s: no component declares it in its metadata.yaml; if others send it over OTLP, "+
				"write it into "+outsideFile, r.File, name)
		}
		if !slices.Contains(a.Consumers, r.Name) {
			a.Consumers = append(a.Consumers, r.Name)
		}
	}
	return nil
}

// Has reports whether an attribute stands in the table, by its name or by a
// family ("pattern.culprit.*").
func (t Table) Has(name string) bool {
	if t[name] != nil {
		return true
	}
	for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name[:i], '.') {
		if t[name[:i]+".*"] != nil {
			return true
		}
	}
	return false
}

// unit follows from the last word of a name: units stand last in our names.
func unit(name string) string {
	for suffix, unit := range map[string]string{"_bytes": "By", "_unix_nano": "ns", "_seconds": "s", "_ns": "ns", "_ms": "ms"} {
		if strings.HasSuffix(name, suffix) {
			return unit
		}
	}
	return ""
}

// Markdown writes the table.
func (t Table) Markdown() []byte {
	var b bytes.Buffer
	b.WriteString("# Attributes\n\n" +
		"Every attribute that tracecore emits or that a pattern reads. Generated from the components' `metadata.yaml` and the rules by\n" +
		"`go test ./distro/internal/attributes -update`; a test fails on an attribute that is used and does not stand here.\n\n" +
		"| attribute | type | unit | emitted by | read by patterns | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(t)) {
		a := t[name]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", a.Name, a.Type, a.Unit,
			strings.Join(a.Emitters, ", "), strings.Join(a.Consumers, ", "), strings.ReplaceAll(a.Description, "|", `\|`))
	}
	return b.Bytes()
}

// File is where the table is kept, from the repository's root.
const File = "ATTRIBUTES.md"
