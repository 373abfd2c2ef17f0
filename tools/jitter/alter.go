package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// folder is where the compiler finds what waits. It must be there, and have no Go of its own.
const folder = "docs"

const (
	seedVariable  = "JITTER_SEED"
	shareVariable = "JITTER_SHARE"
)

// alter puts a call before each statement of a file, numbered from first. It returns the text
// as it was where there is none. Lines keep their numbers.
func alter(text []byte, wait string, first int) (altered []byte, next int, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, first, err
	}
	if usesC(file) { // cgo reads it, and knows of no overlay
		return text, first, nil
	}
	var at []int
	ast.Inspect(file, func(n ast.Node) bool {
		for _, s := range statements(n) {
			at = append(at, files.Position(s.Pos()).Offset)
		}
		return true
	})
	if at == nil {
		return text, first, nil
	}
	slices.Sort(at)
	var b bytes.Buffer
	end := files.Position(file.Name.End()).Offset
	b.Write(text[:end])
	fmt.Fprintf(&b, "; import jitter_ %q", wait)
	next = first
	for _, from := range at {
		b.Write(text[end:from])
		fmt.Fprintf(&b, "jitter_.Wait(%d); ", next)
		end, next = from, next+1
	}
	b.Write(text[end:])
	return b.Bytes(), next, nil
}

// statements are those that stand in a block, so that one can stand before them. The block
// of a switch or a select holds cases alone.
func statements(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	case *ast.BlockStmt:
		return slices.DeleteFunc(slices.Clone(n.List), func(s ast.Stmt) bool {
			switch s.(type) {
			case *ast.CaseClause, *ast.CommClause:
				return true
			}
			return false
		})
	}
	return nil
}

func usesC(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"C"` })
}

// runtime is the package that waits. Of a statement that waits, the first times do, then ever
// fewer, so that a loop ends.
func runtime(sites int) []byte {
	return fmt.Appendf(nil, `package docs

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

var (
	waits [%d]bool
	times [%[1]d]atomic.Int32
)

func init() {
	seed, _ := strconv.ParseUint(os.Getenv(%[2]q), 10, 64)
	share, _ := strconv.ParseFloat(os.Getenv(%[3]q), 64)
	if seed == 0 {
		return
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range waits {
		waits[i] = r.Float64() < share
	}
}

func Wait(n int) {
	if !waits[n] {
		return
	}
	k := times[n].Add(1)
	if k <= 3 || k < 64 && rand.IntN(4) == 0 || k >= 64 && rand.Int32N(k) == 0 {
		time.Sleep(time.Duration(2+rand.IntN(28)) * time.Millisecond)
	}
}
`, max(sites, 1), seedVariable, shareVariable)
}
