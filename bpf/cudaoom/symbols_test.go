//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/cudaoom/fakejob"
)

// The stand-in library has what the probe looks for, name by name.
func TestFakeLibraryHasTheFunctionsOfTheProbe(t *testing.T) {
	require.ElementsMatch(t, functions(), fakejob.Functions())
}
