package memorylimit

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGOMEMLIMITOfTheOperatorGoesFirst(t *testing.T) {
	before := debug.SetMemoryLimit(123 << 20) // as the runtime does when it starts
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "123MiB")
	require.NoError(t, Apply(Collector))
	require.EqualValues(t, 123<<20, debug.SetMemoryLimit(-1))
}

func TestBudgetIsAShareOfTheLimit(t *testing.T) {
	before := debug.SetMemoryLimit(400 << 20)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	require.EqualValues(t, 100<<20, Budget(0.25))
	debug.SetMemoryLimit(math.MaxInt64)
	require.EqualValues(t, Unlimited/4, Budget(0.25))
}
