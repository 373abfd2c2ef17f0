package pystack

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/vmtests/archive"
)

var interpreters = flag.Bool("interpreters", false, "compare with the interpreters of Debian's suites too: fetches them")

// TestEveryInterpreterOfDebian compares static, stripped interpreters, each in a root of its
// own with the C library of its suite.
func TestEveryInterpreterOfDebian(t *testing.T) {
	if !*interpreters {
		return // make verify asks for it
	}
	hosttest.Require(t, "it runs programs in roots of their own")
	for _, tc := range []struct {
		suite, python, ffi string
		says               bool // its own offsets
	}{
		{"bullseye", "python3.9", "libffi7", false},
		{"bookworm", "python3.11", "libffi8", false},
		{"trixie", "python3.13", "libffi8", true},
		{"sid", "python3.14", "libffi8", true},
	} {
		t.Run(tc.suite, func(t *testing.T) {
			root := debianRoot(t, tc.suite, "libc6", "zlib1g", "libexpat1", tc.ffi, tc.python+"-minimal", "lib"+tc.python+"-minimal", "lib"+tc.python+"-stdlib")
			py := python{path: "/usr/bin/" + tc.python, root: root}
			scenes(t, py)
			t.Run("without symbols", func(t *testing.T) {
				hidden := copied(t, py, py.path+"-hidden", withoutSymbols)
				j := start(t, hidden, "scene.py", "no C") // modules in C need the symbols
				if !tc.says {
					_, err := New(procfs.Open("").WithPatience(hosttest.Patience)).Open(j.pid)
					require.ErrorIs(t, err, ErrNoPython)
					return
				}
				require.Zero(t, open(t, j.pid).in.codeType, "its symbols are still there")
				same(t, j)
			})
			t.Run("churn", func(t *testing.T) { noWrongStackIsBelieved(t, py) })
		})
	}
}

// debianRoot unpacks packages of a suite.
func debianRoot(t *testing.T, suite string, packages ...string) string {
	t.Helper()
	debian, err := archive.NewCache("../../.cache/debian")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(debian.Dir, 0o755))
	root := t.TempDir()
	for _, name := range packages {
		pkg, err := debian.Unpack(t.Context(), archive.Query{Suites: []string{suite}, Arch: "amd64", Patterns: []string{name}}, root)
		require.NoError(t, err)
		t.Log(pkg.Name, pkg.Version)
	}
	for _, name := range []string{"lib", "lib64"} { // where Debian has moved them into /usr
		if _, err := os.Lstat(filepath.Join(root, name)); err != nil {
			require.NoError(t, os.Symlink("usr/"+name, filepath.Join(root, name)))
		}
	}
	return root
}
