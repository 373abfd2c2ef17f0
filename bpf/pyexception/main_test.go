//go:build linux && (amd64 || arm64)

package pyexception

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tracecoreai/tracecore/internal/privtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, opts Options) *Probe {
	t.Helper()
	privtest.Require(t)
	p, err := Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}
