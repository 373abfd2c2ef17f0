// Package interpreters takes CPython as Debian's suites have it out of Debian's archive, each in
// a root of its own with the C library of its suite: static and stripped.
package interpreters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tracecoreai/tracecore/vmtests/archive"
)

// Variable names, in the environment of a test, the folder where a machine has the roots, each
// under the name of its suite.
const Variable = "TRACECORE_INTERPRETERS"

// Interpreter is the CPython of a suite.
type Interpreter struct {
	Suite, Name string // trixie, python3.13
	OwnOffsets  bool   // it says its offsets itself
	ffi         string
}

// All are the interpreters of the suites that Debian supports, and of sid.
var All = []Interpreter{
	{"bullseye", "python3.9", false, "libffi7"},
	{"bookworm", "python3.11", false, "libffi8"},
	{"trixie", "python3.13", true, "libffi8"},
	{"sid", "python3.14", true, "libffi8"},
}

// Path is where the root has the program.
func (i Interpreter) Path() string { return "/usr/bin/" + i.Name }

// Unpack unpacks an interpreter for a machine, by Debian's name of it, with all that it loads
// for ctypes and for backtrace(3).
func (i Interpreter) Unpack(ctx context.Context, cache archive.Cache, arch, root string) ([]archive.Package, error) {
	if err := errors.Join(os.MkdirAll(cache.Dir, 0o755), os.MkdirAll(root, 0o755)); err != nil {
		return nil, err
	}
	var taken []archive.Package
	for _, name := range []string{
		"libc6", "libgcc-s1", "zlib1g", "libexpat1", i.ffi, i.Name + "-minimal", "lib" + i.Name + "-minimal", "lib" + i.Name + "-stdlib",
	} {
		pkg, err := cache.Unpack(ctx, archive.Query{Suites: []string{i.Suite}, Arch: arch, Patterns: []string{name}}, root)
		if err != nil {
			return taken, fmt.Errorf("%s of %s: %w", i.Name, i.Suite, err)
		}
		taken = append(taken, pkg)
	}
	for _, name := range []string{"lib", "lib64"} { // where Debian has moved them into /usr
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return taken, err
		}
	}
	return taken, nil
}
