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
