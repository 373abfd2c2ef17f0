// Package interpreterstest runs a test with each CPython of Debian's suites.
package interpreterstest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/vmtests/archive"
	"github.com/tracecoreai/tracecore/vmtests/interpreters"
)

// Each runs a test with each interpreter and its root: those that a machine of vmtests has, or, if
// fetch is set, those of Debian's archive. Otherwise there are none, and the test passes.
// cache is where indexes of the archive are kept.
func Each(t *testing.T, fetch bool, cache string, do func(t *testing.T, one interpreters.Interpreter, root string)) {
	t.Helper()
	machine := os.Getenv(interpreters.Variable)
	if !fetch && machine == "" {
		return
	}
	hosttest.Require(t, "it runs programs in roots of their own")
	for _, one := range interpreters.All {
		t.Run(one.Suite, func(t *testing.T) {
			root := filepath.Join(machine, one.Suite)
			if machine == "" {
				root = unpack(t, one, cache)
			}
			do(t, one, root)
		})
	}
}

// Size is how much of something a test makes: emulation, beside other work, is hundred times slower.
func Size(here, machine int) int {
	if os.Getenv(interpreters.Variable) != "" {
		return machine
	}
	return here
}

func unpack(t *testing.T, one interpreters.Interpreter, cache string) string {
	t.Helper()
	debian, err := archive.NewCache(cache)
	require.NoError(t, err)
	root := t.TempDir()
	taken, err := one.Unpack(t.Context(), debian, runtime.GOARCH, root)
	require.NoError(t, err)
	for _, pkg := range taken {
		t.Log(pkg.Name, pkg.Version)
	}
	return root
}
