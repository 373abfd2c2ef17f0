package rule

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// key is one key of the language, declared once: the decoder reads it and the
// reference page prints it.
type key struct {
	name  string
	value value
	// standard is what holds without the key, as it would be written: needed when
	// the key must be there, "" when there is nothing.
	standard string
	doc      string
}

// needed stands for the default of a key that has none.
const needed = "needed"

// value is what a key can hold.
type value struct {
	kind string // in words
	read func(*yaml.Node)
	// section and keys say what stands in a mapping; a section is described once.
	section string
	keys    []key
}

// object is the value of a mapping with these keys, called what in messages.
func (d *decoder) object(kind, section, what string, keys []key) value {
	return value{kind: kind, section: section, keys: keys, read: func(n *yaml.Node) { d.readKeys(n, what, keys) }}
}

// then adds to v what is done when all of it was read.
func (v value) then(after func(*yaml.Node)) value {
	read := v.read
	v.read = func(n *yaml.Node) { read(n); after(n) }
	return v
}

// described is v for the reference: what it holds is read elsewhere.
func (v value) described() value {
	v.read = func(*yaml.Node) {}
	return v
}

// readKeys reads a mapping whose keys are known, and the defaults of those that
// are not there.
func (d *decoder) readKeys(n *yaml.Node, what string, keys []key) {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].name
	}
	given := map[string]bool{}
	if !d.each(n, what, func(name, v *yaml.Node) {
		i := slices.Index(names, name.Value)
		if i < 0 {
			d.fail(name, "unknown key %q in %s: %s", name.Value, what, meant(what, name.Value, names))
			return
		}
		given[name.Value] = !empty(v)
		keys[i].value.read(v)
	}) {
		return
	}
	for _, k := range keys {
		switch {
		case given[k.name] || k.standard == "":
		case k.standard == needed:
			d.fail(n, "%s is missing in %s: add it (%s: %s)", k.name, what, k.value.kind, k.doc)
		default:
			k.value.read(&yaml.Node{Kind: yaml.ScalarNode, Value: k.standard, Line: n.Line, Column: n.Column})
		}
	}
}

// meant says what to write instead of an unknown key. YAML 1.1 reads on as a boolean,
// which is why explains has no such key any more.
func meant(what, key string, names []string) string {
	if what == "explains" && (key == "on" || key == "true") {
		return "write share:"
	}
	return suggest(key, names)
}

// empty reports whether nothing was written for a key.
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" || n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode && len(n.Content) == 0
}

// each visits the entries of a mapping in file order, and reports whether it is
// one.
func (d *decoder) each(n *yaml.Node, what string, visit func(key, value *yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s must be a mapping of keys to values", what)
		return false
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if line, twice := seen[name.Value]; twice {
			d.fail(name, "%q in %s is already set in line %d: remove one", name.Value, what, line)
			continue
		}
		seen[name.Value] = name.Line
		visit(name, n.Content[i+1])
	}
	return true
}
