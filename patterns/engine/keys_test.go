package engine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// A key that one pattern alone can use is a special case in the language: each has another user
// among the patterns and their examples, or a story here with a rule of another shape.
func TestNoKeyIsForOnePatternAlone(t *testing.T) {
	users := map[string][]string{} // section and key → who uses it
	for _, glob := range []string{"../*/pattern.yaml", "../examples/*/pattern.yaml", "testdata/operators/*.txtar"} {
		names, err := filepath.Glob(glob)
		require.NoError(t, err)
		require.NotEmpty(t, names, glob)
		for _, name := range names {
			for _, text := range ruleTexts(t, name) {
				var document yaml.Node
				require.NoError(t, yaml.Unmarshal(text, &document), name)
				for _, key := range append(keysOf(document.Content[0], "A pattern file"), conditionsOf(text)...) {
					if !slices.Contains(users[key], name) {
						users[key] = append(users[key], name)
					}
				}
			}
		}
	}
	for _, key := range languageKeys() {
		here := slices.ContainsFunc(users[key], func(name string) bool { return strings.HasSuffix(name, ".txtar") })
		if len(users[key]) < 2 && !here && !slices.Contains(ofTheWhole, key) {
			t.Errorf("%s is used by %v alone: write a story in testdata/operators with a rule of another shape, or do without the key", key, users[key])
		}
	}
}

// ofTheWhole are keys that say where a rule or a number belongs, and that no story can show.
var ofTheWhole = []string{"A pattern file replaces", "A pattern file detector", "A parameter processor", "`declares` metrics"}

// ruleTexts are the rules in a pattern file or a story.
func ruleTexts(t *testing.T, name string) (texts [][]byte) {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	if !strings.HasSuffix(name, ".txtar") {
		return [][]byte{content}
	}
	for _, f := range txtar.Parse(content).Files {
		if strings.HasPrefix(f.Name, "rule") {
			texts = append(texts, f.Data)
		}
	}
	return texts
}

// keysOf are the keys in a mapping, or in each of a list, and in what they hold; each with the
// heading of its section in the reference.
func keysOf(n *yaml.Node, section string) (keys []string) {
	if n.Kind == yaml.SequenceNode {
		for _, one := range n.Content {
			keys = append(keys, keysOf(one, section)...)
		}
	}
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		name, v := n.Content[i].Value, n.Content[i+1]
		keys = append(keys, section+" "+name)
		named := map[string]string{"evidence": "A piece of evidence", "resolves": "A piece of evidence", "parameters": "A parameter"}[name]
		if section != "A pattern file" || named == "" {
			keys = append(keys, keysOf(v, "`"+name+"`")...)
			continue
		}
		for j := 1; j < len(v.Content); j += 2 {
			keys = append(keys, keysOf(v.Content[j], named)...)
		}
	}
	return keys
}

// conditionsOf are the predefined conditions that a rule names, as the reference has them.
func conditionsOf(text []byte) (keys []string) {
	for _, use := range regexp.MustCompile(`\$([a-z_]+)`).FindAllSubmatch(text, -1) {
		keys = append(keys, "Predefined conditions "+string(use[1]))
	}
	return keys
}

// languageKeys are the keys of the reference, each with its heading. Of choices, remedies and
// steps, which stand wherever words do, every pattern is an example.
func languageKeys() (keys []string) {
	for _, section := range strings.Split(string(rule.Reference()), "\n## ")[1:] {
		heading, rows, _ := strings.Cut(section, "\n")
		if slices.Contains([]string{"A choice", "A remedy", "A step", "Predefined fields"}, heading) {
			continue
		}
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(rows, -1) {
			keys = append(keys, heading+" "+row[1])
		}
	}
	return keys
}
