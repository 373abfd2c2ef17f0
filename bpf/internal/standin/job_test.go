//go:build linux && (amd64 || arm64)

package standin

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const isJob = "TRACECORE_STANDIN_JOB_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(isJob) != "" {
		if err := Serve(func(call int) (int, error) { return call + 1, nil }); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAStoppedJobKeepsNobodyWaiting: a test that stops a job in the middle of a call fails, and does not hang.
func TestAStoppedJobKeepsNobodyWaiting(t *testing.T) {
	start := func() *Job[int, int] {
		j, err := StartJob[int, int](isJob + "=1")
		require.NoError(t, err)
		answer, err := j.Ask(1)
		require.NoError(t, err)
		require.Equal(t, 2, answer)
		return j
	}
	require.NoError(t, start().Close())

	j := start()
	require.NoError(t, syscall.Kill(int(j.PID()), syscall.SIGSTOP))
	_, err := j.ask(1, 20*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorContains(t, j.close(20*time.Millisecond), "killed")
}
