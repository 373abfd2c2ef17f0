// Package attributes collects every attribute that a component emits or a
// pattern reads into the one table that operators alert on, ATTRIBUTES.md.
package attributes

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Attribute is one row of the table.
type Attribute struct {
	Name, Type, Unit, Description string
	Emitters                      []string // components, by type
	Consumers                     []string // patterns, by name
}

//go:embed declared.yaml
var declaredYAML []byte

// declared is one group of declared.yaml.
type declared struct {
	Emitter    string               `yaml:"emitter"`
	Attributes map[string]described `yaml:"attributes"`
}

type described struct {
	Type        string `yaml:"type"`
	Description string `yaml:"description"`
}

// metadata is the part of a component's metadata.yaml, or of a file of shared groups
// that it includes, that is read here. tools/events makes code of the same.
type metadata struct {
	Type               string               `yaml:"type"`
	Include            []string             `yaml:"include"`
	ResourceAttributes map[string]described `yaml:"resource_attributes"`
	Attributes         map[string]described `yaml:"attributes"`
	Groups             map[string]struct {
		Attributes []string `yaml:"attributes"`
	} `yaml:"groups"`
	Events map[string]struct {
		Groups     []string `yaml:"groups"`
		Attributes []string `yaml:"attributes"`
	} `yaml:"events"`
}

// readMetadata reads a file and takes over the groups and attributes that it includes.
func readMetadata(tree fs.FS, file string) (*metadata, error) {
	text, err := fs.ReadFile(tree, file)
	if err != nil {
		return nil, err
	}
	m := &metadata{}
	if err := yaml.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, name := range m.Include {
		shared, err := readMetadata(tree, path.Join(path.Dir(file), name))
		if err != nil {
			return nil, fmt.Errorf("%s: include: %w", file, err)
		}
		m.Attributes, m.Groups = merged(shared.Attributes, m.Attributes), merged(shared.Groups, m.Groups)
	}
	return m, nil
}

func merged[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}

// Table is the attributes by name.
type Table map[string]*Attribute

// Collect builds the table from the metadata.yaml files of a source tree,
// declared.yaml and the rules. An attribute with two types, or one that a rule
// reads and nobody declares, is an error that says where to write it.
func Collect(tree fs.FS, rules []rule.Rule) (Table, error) {
	table := Table{}
	files, err := fs.Glob(tree, "*/*/metadata.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := table.addComponent(tree, file); err != nil {
			return nil, err
		}
	}
	if err := table.addDeclared(); err != nil {
		return nil, err
	}
	for i := range rules {
		if err := table.addRule(&rules[i]); err != nil {
			return nil, err
		}
	}
	return table, nil
}

// addComponent adds what a component says that its records carry.
func (t Table) addComponent(tree fs.FS, file string) error {
	m, err := readMetadata(tree, file)
	if err != nil {
		return err
	}
	emitted := merged(m.ResourceAttributes, nil)
	for event, e := range m.Events {
		names := slices.Clone(e.Attributes)
		for _, group := range e.Groups {
			names = append(names, m.Groups[group].Attributes...)
		}
		for _, name := range names {
			d, ok := m.Attributes[name]
			if !ok {
				return fmt.Errorf("%s: event %s has the attribute %s without a declaration", file, event, name)
			}
			emitted[name] = d
		}
	}
	for name, d := range emitted {
		if err := t.add(name, d, m.Type); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (t Table) addDeclared() error {
	var groups map[string]declared
	if err := yaml.Unmarshal(declaredYAML, &groups); err != nil {
		return fmt.Errorf("declared.yaml: %w", err)
	}
	for _, group := range groups {
		for name, d := range group.Attributes {
			if err := t.add(name, d, group.Emitter); err != nil {
				return fmt.Errorf("declared.yaml: %w", err)
			}
		}
	}
	return nil
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
				"write it into distro/internal/attributes/declared.yaml", r.File, name)
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
