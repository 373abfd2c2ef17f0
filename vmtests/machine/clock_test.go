package machine

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMachineKnowsHowFastItsClockGoes(t *testing.T) {
	hertz, err := ticksPerSecond()
	require.NoError(t, err)
	if runtime.GOARCH == "amd64" { // a TSC of less or more is none that Linux runs on
		require.Greater(t, hertz, 5e8)
		require.Less(t, hertz, 1e10)
		require.Regexp(t, `^ tsc=reliable no_timer_check tsc_early_khz=\d{6,8}$`, clockParameters("amd64"))
	}
	require.Empty(t, clockParameters("arm64"))
}
