package rule

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// position is a place in a pattern file, counted from 1; zero where nobody knows.
type position struct{ line, column int }

func at(n *yaml.Node) position { return position{n.Line, n.Column} }

// in writes a place as editors and terminals read it: file:line:column.
func (p position) in(file string) string {
	switch {
	case p.line == 0:
		return file
	case p.column == 0:
		return fmt.Sprintf("%s:%d", file, p.line)
	}
	return fmt.Sprintf("%s:%d:%d", file, p.line, p.column)
}
