// Package attributes collects every attribute that a component emits or a
// pattern reads into the one table that operators alert on, ATTRIBUTES.md.
package attributes

import (
	"bytes"
	"cmp"
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
		a = &Attribute{Name: name, Type: d.Type, Unit: unit(name), Description: d.Description}
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

// head says what holds for all records.
const head = "# Events and attributes\n\n" +
	"Every event and attribute that tracecore emits or that a pattern reads. Generated from what emitters declare (`metadata.yaml` of a component, `events.yaml` or\n" +
	"`findings.yaml` in `patterns/` and `internal/`, `distro/internal/attributes/outside.yaml` for others) and the rules by `go test ./distro/internal/attributes -update`; a test fails on an\n" +
	"attribute that is used and does not stand here.\n\n" +
	"A record is an OTLP log record with `event_name`. Its time is when the event happened, its observed time when we read it. Its resource has `host.name`, `host.id`, `host.boot.id` and,\n" +
	"where known, `k8s.node.name`. An attribute that is absent is not known. `documentation.md` of a receiver lists the attributes of each event.\n"

// Page writes ATTRIBUTES.md: the events and the attributes of a source tree.
func Page(tree fs.FS, rules []rule.Rule) ([]byte, error) {
	emitters, err := readAll(tree)
	if err != nil {
		return nil, err
	}
	table, err := Collect(tree, rules)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(head)
	writeEvents(&b, emitters)
	table.write(&b)
	return b.Bytes(), nil
}

// writeEvents writes what each event means. Of two emitters that of a probe says it.
func writeEvents(b *bytes.Buffer, emitters []emitter) {
	type event struct {
		emitters             []string
		feature, description string
	}
	events := map[string]event{}
	for i := range emitters {
		for name, s := range emitters[i].Events {
			e := events[name]
			if e.description == "" || s.Feature != "" && e.feature == "" {
				e.description = s.Description
			}
			e.feature = cmp.Or(e.feature, s.Feature)
			e.emitters = union(e.emitters, []string{emitters[i].Type})
			events[name] = e
		}
	}
	b.WriteString("\n## Events\n\n| event | emitted by | feature of the probes | meaning |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(events)) {
		e := events[name]
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, strings.Join(e.emitters, ", "), e.feature, cell(e.description))
	}
}

// cell is a description as a cell of a table.
func cell(description string) string {
	return strings.ReplaceAll(strings.TrimSuffix(description, "."), "|", `\|`)
}

// write writes the table.
func (t Table) write(b *bytes.Buffer) {
	b.WriteString("\n## Attributes\n\n| attribute | type | unit | emitted by | read by patterns | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(t)) {
		a := t[name]
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", a.Name, a.Type, a.Unit,
			strings.Join(a.Emitters, ", "), strings.Join(a.Consumers, ", "), cell(a.Description))
	}
}

// File is where the table is kept, from the repository's root.
const File = "ATTRIBUTES.md"
