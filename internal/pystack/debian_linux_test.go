package pystack

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/vmtests/interpreters"
	"github.com/tracecoreai/tracecore/vmtests/interpreters/interpreterstest"
)

var fetch = flag.Bool("interpreters", false, "compare with the interpreters of Debian's suites too: fetches them")

// TestEveryInterpreterOfDebian compares static, stripped interpreters, each in a root of its
// own with the C library of its suite. make verify asks for it.
func TestEveryInterpreterOfDebian(t *testing.T) {
	interpreterstest.Each(t, *fetch, "../../.cache/debian", func(t *testing.T, one interpreters.Interpreter, root string) {
		py := python{path: one.Path(), root: root}
		scenes(t, py)
		t.Run("without symbols", func(t *testing.T) {
			hidden := copied(t, py, py.path+"-hidden", withoutSymbols)
			j := start(t, hidden, "scene.py", "no C") // modules in C need the symbols
			if !one.OwnOffsets {
				_, err := New(procfs.Open("").WithPatience(hosttest.Patience)).Open(j.pid)
				require.ErrorIs(t, err, ErrNoPython)
				return
			}
			require.Zero(t, open(t, j.pid).in.codeType, "its symbols are still there")
			same(t, j)
		})
		t.Run("churn", func(t *testing.T) { noWrongStackIsBelieved(t, py, interpreterstest.Size(*churn, 30)) })
	})
}
