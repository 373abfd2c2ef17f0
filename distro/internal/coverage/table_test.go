package coverage

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/distro/internal/attributes"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

var update = flag.Bool("update", false, "rewrite patterns/SIGNALS.md")

const signals = "../../../patterns/SIGNALS.md"

const signalsHead = `# What each pattern reads, and where it comes from

Generated from the pattern files by ` + "`go test ./distro/internal/coverage -update`" + `. A cell names the pieces of evidence that a source gives;
the last column is the best verdict that is left when nothing but tracecore's own probes speak.

`

func TestSignalsTableIsCurrent(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	table, err := Table(rules)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(signals, []byte(signalsHead+table), 0o644))
	}
	written, err := os.ReadFile(signals)
	require.NoError(t, err)
	require.Equal(t, signalsHead+table, string(written), "run go test ./distro/internal/coverage -update")
}

func TestASignalOfNobodyHasNoColumn(t *testing.T) {
	require.Empty(t, columnsOf(attributes.Signal{Emitters: []string{"somebody"}}))
	require.Equal(t, []int{0}, columnsOf(attributes.Signal{Emitters: []string{"kernelevents", "gpu"}, Feature: "kernel_log"}))
	require.Equal(t, []int{1}, columnsOf(attributes.Signal{Emitters: []string{"gpu", "container logs"}}))
	require.Equal(t, []int{0, 3}, columnsOf(attributes.Signal{Emitters: []string{"rankjoin"}, Feature: "collective_calls"}))
	_, err := Table([]rule.Rule{{Name: "odd", Evidence: []rule.Evidence{{Name: "e", Logs: []string{"nobody.says"}}}}})
	require.ErrorContains(t, err, "pattern odd reads nobody.says")
}
