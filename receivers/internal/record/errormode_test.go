package record

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyTheTwoModesPass(t *testing.T) {
	require.NoError(t, Propagate.Check())
	require.NoError(t, Ignore.Check())
	require.EqualError(t, ErrorMode("").Check(), `error_mode: "" is neither propagate nor ignore`)
}
