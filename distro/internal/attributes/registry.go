package attributes

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// RegistryFile is our attributes as a registry of semantic conventions, in the form that
// OpenTelemetry's Weaver reads, from the repository's root.
const RegistryFile = "docs/semconv/registry.yaml"

// registryGroup is a group of attributes with one first name.
type registryGroup struct {
	ID         string              `yaml:"id"`
	Type       string              `yaml:"type"`
	Brief      string              `yaml:"brief"`
	Name       string              `yaml:"name,omitempty"`
	Stability  string              `yaml:"stability,omitempty"`
	Attributes []registryAttribute `yaml:"attributes"`
}

// registryAttribute is one of ours (ID), or names one (Ref) that is declared in another
// group or by OpenTelemetry.
type registryAttribute struct {
	ID        string   `yaml:"id,omitempty"`
	Ref       string   `yaml:"ref,omitempty"`
	Type      string   `yaml:"type,omitempty"`
	Stability string   `yaml:"stability,omitempty"`
	Brief     string   `yaml:"brief,omitempty"`
	Examples  []string `yaml:"examples,flow,omitempty"`
}

// registryTypes maps our types to those of a registry. We do not say what lists hold.
var registryTypes = map[string]string{"string": "string", "int": "int", "double": "double", "bool": "boolean", "slice": "any", "map": "any"}

const development = "development"

// Registry writes the registry: a group of attributes for each first name, then a group for
// each event. What OpenTelemetry has (by name) is referred to and not declared again.
func Registry(table Table, events map[string]Signal, theirs func(name string) bool) ([]byte, error) {
	groups := attributeGroups(table, theirs)
	for _, name := range slices.Sorted(maps.Keys(events)) {
		if strings.HasPrefix(name, rule.FindingPrefix) {
			continue // it never leaves the engine
		}
		g := registryGroup{ID: "event." + name, Type: "event", Name: name, Stability: development, Brief: "Record " + name + "."}
		for _, attribute := range events[name].Attributes {
			g.Attributes = append(g.Attributes, registryAttribute{Ref: strings.TrimSuffix(attribute, ".*")})
		}
		groups = append(groups, g)
	}
	var b bytes.Buffer
	b.WriteString("# Attributes and events of tracecore as a registry of semantic conventions. Generated from what emitters declare:\n" +
		"# go test ./distro/internal/attributes -update. ATTRIBUTES.md is the same for people.\n")
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(map[string]any{"groups": groups})
	return b.Bytes(), err
}

func attributeGroups(table Table, theirs func(string) bool) []registryGroup {
	byName := map[string]*registryGroup{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		first, _, _ := strings.Cut(name, ".")
		g := byName[first]
		if g == nil {
			g = &registryGroup{ID: "registry.tracecore." + first, Type: "attribute_group", Brief: "Attributes that begin with " + first + "."}
			byName[first] = g
		}
		g.Attributes = append(g.Attributes, registryEntry(table[name], theirs))
	}
	groups := make([]registryGroup, 0, len(byName))
	for _, first := range slices.Sorted(maps.Keys(byName)) {
		groups = append(groups, *byName[first])
	}
	return groups
}

// registryEntry is one attribute; a family ("pattern.culprit.*") is a template.
func registryEntry(a *Attribute, theirs func(string) bool) registryAttribute {
	if theirs(a.Name) {
		return registryAttribute{Ref: a.Name}
	}
	entry := registryAttribute{
		ID: a.Name, Type: registryTypes[a.Type], Stability: development, Brief: cmp.Or(a.Description, "As its sender means it."),
	}
	if family, is := strings.CutSuffix(a.Name, ".*"); is {
		entry.ID, entry.Type = family, "template["+entry.Type+"]"
	}
	return entry
}
