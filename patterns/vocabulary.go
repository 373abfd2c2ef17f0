package patterns

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

//go:embed vocabulary.yaml
var vocabularyYAML []byte

// VocabularyYAML returns the file as it is: with emitters, features and types.
func VocabularyYAML() []byte { return vocabularyYAML }

// Emitters says which components, or others, tell of each event and metric. It is empty for
// a vocabulary that cannot be read, which a test rules out.
func Emitters() map[string][]string {
	type signals map[string]struct{ Emitters []string }
	var known struct{ Events, Metrics signals }
	emitters := map[string][]string{}
	if yaml.Unmarshal(vocabularyYAML, &known) != nil {
		return emitters
	}
	for _, all := range []signals{known.Events, known.Metrics} {
		for name, one := range all {
			emitters[name] = one.Emitters
		}
	}
	return emitters
}

// Vocabulary returns the names that the components of tracecore emit and that its patterns
// read from others. distro/internal/attributes writes vocabulary.yaml from what they declare.
func Vocabulary() (*rule.Vocabulary, error) {
	var known struct {
		Events, Metrics, Attributes map[string]yaml.Node
	}
	if err := yaml.Unmarshal(vocabularyYAML, &known); err != nil {
		return nil, fmt.Errorf("vocabulary.yaml: %w", err)
	}
	return &rule.Vocabulary{
		Events:     slices.Sorted(maps.Keys(known.Events)),
		Metrics:    slices.Sorted(maps.Keys(known.Metrics)),
		Attributes: slices.Sorted(maps.Keys(known.Attributes)),
	}, nil
}
