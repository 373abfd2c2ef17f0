package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/otelcol"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// place says what is wrong in the configuration files of a command: file, line and key,
// where the collector names Go types and no file. What it does not know it leaves as it is.
func place(err error, cmd *cobra.Command) error {
	undecoded := strings.Contains(err.Error(), "the configuration: ")
	if cmd.Flags().Lookup("config") == nil || !undecoded && !strings.Contains(err.Error(), "::") {
		return err
	}
	files, broken := readConfigs(configURIs(cmd))
	switch {
	case broken != nil:
		return broken
	case !undecoded:
		return says{located(err.Error(), files), err}
	}
	var wrong []string
	for _, m := range mistakes(err.Error()) {
		wrong = append(wrong, m.lines(files)...)
	}
	if len(wrong) == 0 {
		return err
	}
	return errors.New(strings.Join(wrong, "\n"))
}

// says is an error in other words.
type says struct {
	text string
	error
}

func (s says) Error() string { return s.text }
func (s says) Unwrap() error { return s.error }

// configFile is a file of --config.
type configFile struct {
	name string
	root *yaml.Node
}

// readConfigs reads the files among the places of a configuration, the last first: what it
// says holds.
func readConfigs(uris []string) (files []configFile, err error) {
	for _, uri := range slices.Backward(uris) {
		name := strings.TrimPrefix(strings.TrimSpace(uri), "file:")
		data, err := os.ReadFile(name)
		var cause *fs.PathError
		switch {
		case err == nil:
		case strings.Contains(name, ":") || !errors.As(err, &cause):
			continue // of another scheme
		default:
			return nil, fmt.Errorf("%s: %w: give --config a file that this user may read", name, cause.Err)
		}
		var document yaml.Node
		err = yaml.Unmarshal(data, &document)
		if err == nil {
			err = document.Decode(&map[string]any{}) // keys that stand twice
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: mend the YAML there", name, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(document.Content) > 0 {
			files = append(files, configFile{name, document.Content[0]})
		}
	}
	return files, nil
}

// mistake is one line of what the collector says about a configuration.
type mistake struct {
	component []string // section and id, none for what is about no component
	above     []string // the block that the line stands in
	at        []string // what the line is about, below those
	text      string
}

var (
	mistakeLine   = regexp.MustCompile(`^'([^']*)' (.*)$`)
	componentLine = regexp.MustCompile(`^error reading configuration for "([^"]+)": `)
	goType        = regexp.MustCompile(`^[a-z0-9_]+\.([A-Z]\w*|configSettings)$`)
	invalidKeys   = regexp.MustCompile(`^has invalid keys: (.*)$`)
	wrongType     = regexp.MustCompile(`^expected type '([^']+)', got unconvertible type '([^']+)'`)
	noBlock       = regexp.MustCompile(`^expected a map or struct, got "([^"]+)"`)
	ofItsLine     = regexp.MustCompile(`^line \d+: `) // of a part that was written as YAML anew: no line of a file
	noField       = regexp.MustCompile(`field (\S+) not found in type \S+`)
	noList        = regexp.MustCompile(`^source data must be an array or slice, got (\w+)`)
	noSignal      = regexp.MustCompile(`^in "[^"]+" id: unknown pipeline signal: "([^"]*)"`)
)

const nested = "decoding failed due to the following error(s):"

// mistakes reads the text of mapstructure, as confmap hands it on.
func mistakes(text string) (all []mistake) {
	var component, above []string
	for line := range strings.Lines(text) {
		parts := mistakeLine.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil { // the text of the line before goes on
			if more := noField.ReplaceAllString(ofItsLine.ReplaceAllString(strings.TrimSpace(line), ""), "there is no key $1"); more != "" && len(all) > 0 {
				all[len(all)-1].text += " " + more
			}
			continue
		}
		at := keys(parts[1])
		if id := componentLine.FindStringSubmatch(parts[2]); id != nil {
			component, above, at = append(at, id[1]), nil, nil
			if parts[2] = parts[2][len(id[0]):]; strings.HasSuffix(parts[2], nested) {
				continue
			}
		}
		if parts[1] == "otelcol.configSettings" {
			component, above = nil, nil // it ends the list with what is about none
		}
		switch {
		case parts[2] == nested:
			above = append(slices.Clone(above), at...)
		case strings.HasSuffix(parts[2], nested): // a component that decodes itself says in its own words where
		default:
			all = append(all, mistake{component: component, above: above, at: at, text: parts[2]})
		}
	}
	return all
}

// keys splits the name of a place, limits.marks or mutes[0]; the name of a Go type is none.
func keys(name string) []string {
	if goType.MatchString(name) {
		return nil
	}
	return strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// lines says what is wrong: a line for each key that nobody knows, or one for a value.
func (m mistake) lines(files []configFile) (all []string) {
	unknown := invalidKeys.FindStringSubmatch(m.text)
	if unknown == nil {
		path, where := m.find(files, "")
		return []string{fmt.Sprintf("%s%s: %s", where, strings.Join(path, "::"), m.value())}
	}
	for key := range strings.SplitSeq(unknown[1], ", ") {
		path, where := m.find(files, key)
		if len(path) > 0 {
			where += strings.Join(path, "::") + ": "
		}
		help := "mend its name, or take it out"
		if names := m.known(path); len(names) > 0 {
			help = rule.Suggest(key, names)
		}
		all = append(all, fmt.Sprintf("%sthere is no key %q: %s", where, key, help))
	}
	return all
}

// value says what is wrong with a value, in words of YAML.
func (m mistake) value() string {
	if strings.HasPrefix(m.text, "time: ") {
		return "this is no duration: write 30s, 5m or 2h"
	}
	text := strings.TrimPrefix(m.text, "'' ") // of a block that decodes itself
	if types := wrongType.FindStringSubmatch(text); types != nil {
		return fmt.Sprintf("write %s here, not %s", inYAML(types[1]), inYAML(types[2]))
	}
	if got := noBlock.FindStringSubmatch(text); got != nil {
		return fmt.Sprintf("write keys with values here, not %s", inYAML(got[1]))
	}
	if got := noList.FindStringSubmatch(text); got != nil {
		return fmt.Sprintf("write a list here, not %s", inYAML(got[1]))
	}
	if got := noSignal.FindStringSubmatch(text); got != nil {
		return fmt.Sprintf("the name of a pipeline begins with what is in it, and %q is nothing: %s", got[1], rule.Suggest(got[1], []string{"logs", "metrics", "traces"}))
	}
	return text
}

// inYAML is a type of Go in words of YAML. One with a name is a text, but for durations.
func inYAML(goType string) string {
	switch {
	case goType == "time.Duration":
		return "a duration, as 30s, 5m or 2h,"
	case strings.HasPrefix(goType, "map"):
		return "keys with values"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case strings.HasPrefix(goType, "["), goType == "slice":
		return "a list"
	case goType == "bool":
		return "true or false"
	default:
		return "a text"
	}
}

// find returns the path that the mistake is about, and its file and line; with a key, the
// place that has it. The text does not say where a block ends: the longest path that a file
// has is taken.
func (m mistake) find(files []configFile, key string) (path []string, where string) {
	for n := len(m.above); n >= 0; n-- {
		path = slices.Concat(m.component, m.above[:n], m.at)
		for _, file := range files {
			if line := lineOf(file.root, path, key); line > 0 {
				return path, fmt.Sprintf("%s:%d: ", file.name, line)
			}
		}
	}
	for _, file := range files {
		if path, line := anywhere(file.root, m.component, key); key != "" && line > 0 {
			return path, fmt.Sprintf("%s:%d: ", file.name, line)
		}
	}
	return slices.Concat(m.component, m.at), ""
}

// anywhere looks for a key under a path: a component that decodes itself does not say where
// in it. Two places of that name are none.
func anywhere(root *yaml.Node, path []string, key string) (at []string, line int) {
	node, _ := follow(root, path)
	if node == nil {
		return nil, 0
	}
	found := 0
	var walk func(node *yaml.Node, path []string)
	walk = func(node *yaml.Node, path []string) {
		if node.Kind == yaml.AliasNode {
			return // its anchor is in the file, too
		}
		for i, item := range node.Content {
			switch {
			case node.Kind == yaml.SequenceNode:
				walk(item, below(path, fmt.Sprint(i)))
			case i%2 == 1:
				if name := node.Content[i-1]; name.Value == key {
					at, line, found = path, name.Line, found+1
				}
				walk(item, below(path, node.Content[i-1].Value))
			}
		}
	}
	walk(node, path)
	if found != 1 {
		return nil, 0
	}
	return at, line
}

// lineOf returns the line of a path, or of a key in its mapping; 0 if it is not there.
func lineOf(node *yaml.Node, path []string, key string) int {
	if key != "" {
		path = below(path, key)
	}
	_, line := follow(node, path)
	return line
}

// follow returns what stands at a path, and the line of its key; nil and 0 if it is not there.
func follow(node *yaml.Node, path []string) (*yaml.Node, int) {
	line := node.Line
	for _, step := range path {
		if node, line = child(node, step); node == nil {
			return nil, 0
		}
	}
	return node, line
}

func child(node *yaml.Node, step string) (*yaml.Node, int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	for i, item := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode && fmt.Sprint(i) == step:
			return item, item.Line
		case node.Kind == yaml.MappingNode && i%2 == 0 && item.Value == step:
			return node.Content[i+1], item.Line
		}
	}
	return nil, 0
}

// known returns the keys that a place has by default, as far as the component tells.
func (m mistake) known(path []string) []string {
	switch {
	case len(path) == 0:
		return []string{"receivers", "processors", "exporters", "connectors", "extensions", "service"}
	case len(path) == 1 && path[0] == "service":
		return []string{"extensions", "pipelines", "telemetry"}
	case len(path) == 3 && path[0] == "service" && path[1] == "pipelines":
		return []string{"receivers", "processors", "exporters"}
	case len(m.component) < 2:
		return nil
	}
	conf := confmap.New()
	if factory := factoryOf(m.component[0], m.component[1]); factory == nil || conf.Marshal(factory.CreateDefaultConfig()) != nil {
		return nil
	}
	var at any = conf.ToStringMap()
	for _, step := range path[len(m.component):] {
		below, _ := at.(map[string]any)
		at = below[step]
	}
	var names []string
	if below, ok := at.(map[string]any); ok {
		for name := range below {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func factoryOf(section, id string) component.Factory {
	var of component.ID
	factories, err := components.Factories()
	if err != nil || of.UnmarshalText([]byte(id)) != nil {
		return nil
	}
	return factoryIn(factories, section, of.Type())
}

func factoryIn(factories otelcol.Factories, section string, of component.Type) component.Factory {
	return factoriesOf(factories, section)[of]
}

// factoriesOf are the factories of a section.
func factoriesOf(factories otelcol.Factories, section string) map[component.Type]component.Factory {
	switch section {
	case "receivers":
		return plain(factories.Receivers)
	case "processors":
		return plain(factories.Processors)
	case "exporters":
		return plain(factories.Exporters)
	case "connectors":
		return plain(factories.Connectors)
	default:
		return plain(factories.Extensions)
	}
}

func plain[F component.Factory](factories map[component.Type]F) map[component.Type]component.Factory {
	all := make(map[component.Type]component.Factory, len(factories))
	for of, factory := range factories {
		all[of] = factory
	}
	return all
}
