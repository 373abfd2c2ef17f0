// Package patterns is the library of patterns: one folder each, with the rule,
// its stories and its README for operators.
package patterns

import (
	"embed"
	"io/fs"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

//go:embed */pattern.yaml */README.md */testdata/*.txtar
var files embed.FS

// FS returns the files of the library: <pattern>/pattern.yaml, its README.md
// and testdata/*.txtar.
func FS() fs.FS { return files }

// Library returns the rules of the library, ordered by id.
func Library() ([]rule.Rule, error) { return rule.Load(files, ".") }
