package story

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// mention is a name that records of a story have, and where it stands in the file.
type mention struct {
	kind         rule.NameKind
	name         string
	line, column int
}

// checkNames fails for each name of the records that is not known. No rule reads a name with
// a typo: a story that wants no verdict would prove nothing.
func (s *Story) checkNames(known *rule.Vocabulary) error {
	var errs []error
	told := map[mention]bool{}
	for _, m := range s.mentions {
		if told[m] { // an alias
			continue
		}
		told[m] = true
		if err := known.CheckName(m.kind, m.name); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d:%d: %w in the pattern file", s.Name, m.line, m.column, err))
		}
	}
	return errors.Join(errs...)
}

// mentionsIn returns the names in records.yaml.
func mentionsIn(section *yaml.Node) (all []mention) {
	add := func(kind rule.NameKind, n *yaml.Node) {
		all = append(all, mention{kind, n.Value, n.Line, n.Column})
	}
	attributes := func(of *yaml.Node) {
		for name := range pairs(of) {
			add(rule.AttributeName, name)
		}
	}
	for key, value := range pairs(section) {
		switch key.Value {
		case "resource":
			attributes(value)
		case "records":
			for _, record := range items(value) {
				for key, value := range pairs(record) {
					switch key.Value {
					case "log":
						add(rule.EventName, value)
					case "metric":
						add(rule.MetricName, value)
					case "resource", "attributes":
						attributes(value)
					}
				}
			}
		}
	}
	return all
}

// pairs are the keys and values of a mapping, with those that it merges (<<).
func pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		n := behind(n)
		if n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], behind(n.Content[i+1])
			if key.Tag == "!!merge" {
				for key, value := range pairs(value) {
					if !yield(key, value) {
						return
					}
				}
				continue
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// items are the members of a list.
func items(n *yaml.Node) []*yaml.Node {
	if n = behind(n); n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// behind is the value that a document has or an alias stands for.
func behind(n *yaml.Node) *yaml.Node {
	for {
		switch {
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		default:
			return n
		}
	}
}

// What the YAML decoder says of a line, and of a key that is in none of the types below.
var (
	inLine     = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownKey = regexp.MustCompile(`^field (\S+) not found in type story\.(\w+)$`)
)

// placed puts the file and the line before each error that err is made of.
func placed(file string, err error) error {
	if err == nil {
		return nil
	}
	var errs []error
	var wrong *yaml.TypeError
	texts := strings.Split(err.Error(), "\n")
	if errors.As(err, &wrong) {
		texts = wrong.Errors
	}
	for _, text := range texts {
		if strings.HasPrefix(text, "yaml: ") {
			text += ": correct the YAML here or nearby"
		}
		found := inLine.FindStringSubmatch(text)
		if found == nil {
			errs = append(errs, fmt.Errorf("%s: %s", file, strings.TrimPrefix(text, "yaml: ")))
			continue
		}
		text = found[2]
		if key := unknownKey.FindStringSubmatch(text); key != nil {
			text = fmt.Sprintf("unknown key %q: %s", key[1], rule.Suggest(key[1], keysOf(key[2])))
		}
		errs = append(errs, fmt.Errorf("%s:%s: %s", file, found[1], text))
	}
	return errors.Join(errs...)
}

// keysOf are the keys of a mapping that is read into a type of this package.
func keysOf(typeName string) (keys []string) {
	for _, one := range []any{Input{}, Options{}, Record{}, Repeat{}, Want{}, Verdict{}} {
		if t := reflect.TypeOf(one); t.Name() == typeName {
			for field := range t.NumField() {
				if key := t.Field(field).Tag.Get("yaml"); key != "" {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}
