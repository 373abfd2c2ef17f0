// Package patterns is the library of patterns: one folder each, with the rule,
// its stories and its README for operators.
package patterns

import (
	"embed"
	"io/fs"
	"slices"
	"sync"

	crashloop "github.com/tracecoreai/tracecore/patterns/crash_loop"
	cudaoom "github.com/tracecoreai/tracecore/patterns/cuda_oom"
	ncclsocketstall "github.com/tracecoreai/tracecore/patterns/nccl_socket_stall"
	"github.com/tracecoreai/tracecore/patterns/rule"
	silentdatacorruption "github.com/tracecoreai/tracecore/patterns/silent_data_corruption"
	"github.com/tracecoreai/tracecore/patterns/straggler"
)

//go:embed */pattern.yaml */README.md */testdata/*.txtar
var files embed.FS

// FS returns the files of the library: <pattern>/pattern.yaml, its README.md
// and testdata/*.txtar.
func FS() fs.FS { return files }

// detectors are the algorithms that pattern files can name.
func detectors() []rule.Detector {
	return []rule.Detector{crashloop.Detector(), cudaoom.Detector(), ncclsocketstall.Detector(), silentdatacorruption.Detector(), straggler.Detector()}
}

// parsed reads the rules once: most of a start is compiling their conditions.
var parsed = sync.OnceValues(func() ([]rule.Rule, error) {
	rules, err := rule.Load(files, ".")
	rule.Wire(rules, detectors())
	return rules, err
})

// Library returns the rules of the library, ordered by id. What they point to is
// everybody's: it must not be changed.
func Library() ([]rule.Rule, error) {
	rules, err := parsed()
	return slices.Clone(rules), err
}

// LoadPaths returns the rules of pattern files and folders outside of the
// library. They can name its detectors. A name of an event, metric or attribute that
// nobody is known to send is an error, unless the file declares it.
func LoadPaths(paths ...string) ([]rule.Rule, error) {
	rules, err := rule.LoadPaths(paths...)
	if err != nil {
		return nil, err
	}
	vocabulary, err := Vocabulary()
	if err != nil {
		return nil, err
	}
	rule.Wire(rules, detectors())
	return rules, vocabulary.Check(rules)
}
