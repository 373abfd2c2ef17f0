//go:build linux && (amd64 || arm64)

package identityextension

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// The extension knows this process by BPF.
func TestExtensionKnowsALivingProcess(t *testing.T) {
	privtest.Require(t)
	b := newBench(t, ErrorModeIgnore, openTracker)
	require.NoError(t, b.start())
	p, known := b.extension.(identity.Resolver).Lookup(uint32(os.Getpid()), 0, time.Now())
	require.True(t, known)
	require.EqualValues(t, os.Getppid(), p.ParentPID)
	require.WithinDuration(t, time.Now(), p.StartTime, time.Hour)
	b.shutdown(t)
}
