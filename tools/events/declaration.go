package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// sharedFile holds attributes that several components share. Its folder is the Go
// package that writes them.
const sharedFile = "groups.yaml"

// declaration is what a metadata.yaml or a groups.yaml says of log records.
type declaration struct {
	Include            []string             `yaml:"include"`
	ResourceAttributes map[string]attribute `yaml:"resource_attributes"`
	Attributes         map[string]attribute `yaml:"attributes"`
	Groups             map[string]*group    `yaml:"groups"`
	Maps               map[string]*nested   `yaml:"maps"`
	Events             map[string]*event    `yaml:"events"`
	Status             struct {
		Class string `yaml:"class"`
	} `yaml:"status"`

	file     string
	document yaml.Node
}

type attribute struct {
	Description string `yaml:"description"`
	Type        string `yaml:"type"`
	Level       string `yaml:"requirement_level,omitempty"`
	Enabled     *bool  `yaml:"enabled,omitempty"`
}

// group is attributes that several events carry together.
type group struct {
	Description string   `yaml:"description"`
	Attributes  []string `yaml:"attributes"`

	Shared bool `yaml:"-"` // it comes from an included file
}

// nested is the keys of the maps that an attribute holds.
type nested struct {
	Description string               `yaml:"description"`
	Keys        map[string]attribute `yaml:"keys"`
}

type event struct {
	Description string   `yaml:"description"`
	Groups      []string `yaml:"groups"`
	Attributes  []string `yaml:"attributes"`
}

// read reads a file and what it includes. Every name that it uses is declared.
func read(file string) (*declaration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := &declaration{file: file}
	if err := yaml.Unmarshal(text, &d.document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := d.document.Decode(d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if d.Attributes == nil {
		d.Attributes = map[string]attribute{}
	}
	if d.Groups == nil {
		d.Groups = map[string]*group{}
	}
	for _, name := range d.Include {
		included, err := read(filepath.Join(filepath.Dir(file), name))
		if err != nil {
			return nil, err
		}
		if err := d.include(included); err != nil {
			return nil, err
		}
	}
	return d, d.check()
}

// include takes over the groups of a shared file that events of this one carry.
func (d *declaration) include(from *declaration) error {
	used := map[string]bool{}
	for _, e := range d.Events {
		for _, name := range e.Groups {
			used[name] = true
		}
	}
	for name, g := range from.Groups {
		if !used[name] {
			continue
		}
		if d.Groups[name] != nil {
			return fmt.Errorf("%s: group %s is declared in %s already: use that or rename this", d.file, name, from.file)
		}
		d.Groups[name] = &group{Description: g.Description, Attributes: g.Attributes, Shared: true}
		for _, a := range g.Attributes {
			if _, twice := d.Attributes[a]; twice {
				return fmt.Errorf("%s: attribute %s is declared in %s already: remove it here", d.file, a, from.file)
			}
			d.Attributes[a] = from.Attributes[a]
		}
	}
	return nil
}

// types maps a type of metadata.yaml to the method of record.Attributes and the type of
// its argument in Go.
var types = map[string]struct{ put, argument string }{
	"string": {"Str", "string"}, "int": {"Int", "int64"}, "bool": {"Bool", "bool"}, "double": {"Double", "float64"},
	"slice": {"Slice", ""}, "map": {"Map", ""},
}

// check refuses a name without a declaration, a type without a method, and an
// attribute that an event would carry twice.
func (d *declaration) check() error {
	if err := d.typed("attribute", d.Attributes); err != nil {
		return err
	}
	for name, m := range d.Maps {
		if err := d.typed("map "+name+": key", m.Keys); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Groups)) {
		if err := d.declared("group "+name, d.Groups[name].Attributes); err != nil {
			return err
		}
	}
	for _, name := range d.events() {
		e := d.Events[name]
		if e.Description == "" {
			return fmt.Errorf("%s: event %s: say in its description what happened", d.file, name)
		}
		for _, g := range e.Groups {
			if d.Groups[g] == nil {
				return fmt.Errorf("%s: event %s: no group %s: declare it under groups or include its file", d.file, name, g)
			}
		}
		if err := d.declared("event "+name, d.attributesOf(e)); err != nil {
			return err
		}
	}
	return nil
}

func (d *declaration) typed(kind string, all map[string]attribute) error {
	for name, a := range all {
		if types[a.Type].put == "" {
			return fmt.Errorf("%s: %s %s: type %q: use one of %v", d.file, kind, name, a.Type, slices.Sorted(maps.Keys(types)))
		}
	}
	return nil
}

func (d *declaration) declared(where string, names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if _, known := d.Attributes[name]; !known {
			return fmt.Errorf("%s: %s: no attribute %s: declare it under attributes", d.file, where, name)
		}
		if seen[name] {
			return fmt.Errorf("%s: %s has the attribute %s twice", d.file, where, name)
		}
		seen[name] = true
	}
	return nil
}

// attributesOf lists all attributes of an event, those of its groups first.
func (d *declaration) attributesOf(e *event) []string {
	var all []string
	for _, g := range e.Groups {
		all = append(all, d.Groups[g].Attributes...)
	}
	return append(all, e.Attributes...)
}

// hasBuilder reports whether code is made of the events. Others than receivers declare
// what they emit and write it themselves.
func (d *declaration) hasBuilder() bool { return d.Status.Class == "receiver" && len(d.Events) > 0 }

// withoutEvents leaves to mdatagen what is not about log records.
func (d *declaration) withoutEvents() ([]byte, error) {
	root := d.document.Content[0]
	for _, name := range d.events() {
		for _, a := range d.attributesOf(d.Events[name]) {
			remove(value(root, "attributes"), a)
		}
	}
	for _, key := range []string{"include", "groups", "maps", "events", "resource_attributes"} {
		remove(root, key)
	}
	return encode(root)
}

func (d *declaration) events() []string { return slices.Sorted(maps.Keys(d.Events)) }

func encode(root *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	err := yaml.NewEncoder(&b).Encode(root)
	return b.Bytes(), err
}

// forMdatagen returns the file in mdatagen's own format: groups become attributes.
func (d *declaration) forMdatagen() ([]byte, error) {
	if !d.hasBuilder() {
		return d.withoutEvents()
	}
	root := d.document.Content[0]
	for _, ours := range []string{"include", "groups", "maps"} {
		remove(root, ours)
	}
	if len(d.Attributes) > 0 {
		attributes := &yaml.Node{}
		if err := attributes.Encode(d.Attributes); err != nil {
			return nil, err
		}
		sortKeys(attributes)
		remove(root, "attributes")
		root.Content = append(root.Content, scalar("attributes"), attributes)
	}
	events := value(root, "events")
	for i := 0; events != nil && i < len(events.Content); i += 2 {
		body := events.Content[i+1]
		all := d.attributesOf(d.Events[events.Content[i].Value])
		slices.Sort(all)
		list := &yaml.Node{}
		if err := list.Encode(all); err != nil {
			return nil, err
		}
		for _, ours := range []string{"groups", "feature", "attributes"} {
			remove(body, ours)
		}
		body.Content = append(body.Content, scalar("attributes"), list)
	}
	return encode(root)
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// value returns the value of a key of a mapping, nil when it has none.
func value(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func remove(mapping *yaml.Node, key string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		}
	}
}

// sortKeys sorts as mdatagen wants it: by bytes.
func sortKeys(mapping *yaml.Node) {
	pairs := slices.Collect(slices.Chunk(mapping.Content, 2))
	slices.SortFunc(pairs, func(a, b []*yaml.Node) int { return cmp.Compare(a[0].Value, b[0].Value) })
	mapping.Content = slices.Concat(pairs...)
}
