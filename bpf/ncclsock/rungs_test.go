//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// kernelAtLeast asks the kernel's version, which a probe must not: here it checks
// what the probe found out by trying.
func kernelAtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	require.NoError(t, unix.Uname(&u))
	var haveMajor, haveMinor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &haveMajor, &haveMinor)
	require.NoError(t, err)
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}

// rungsHere are the rungs that this kernel must have.
func rungsHere(t testing.TB) []string {
	if kernelAtLeast(t, 6, 1) {
		return Rungs()
	}
	return Rungs()[1:]
}

func TestEachRungIsWhatThisKernelAllows(t *testing.T) {
	privtest.Require(t)
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, report, err := Try(Options{Rung: rung})
			require.Len(t, report.Attempts, 1)
			got := report.Attempts[0]
			if rung == RungProcess && !kernelAtLeast(t, 6, 1) {
				require.Error(t, err)
				require.Equal(t, probe.Unsupported, got.Outcome)
				require.Contains(t, got.Hint, "Linux 6.1")
				return
			}
			require.NoError(t, err)
			require.Equal(t, probe.Attempt{Rung: rung, Outcome: probe.OK, Fired: true}, got)
			require.NoError(t, p.Fire(t.Context()))
			require.Equal(t, report, p.Report())
			require.NoError(t, p.Close())
			require.NoError(t, p.Close())
			require.ErrorIs(t, p.Snapshot(nil, &Snapshot{}), probe.ErrClosed)
			require.ErrorIs(t, p.ReadChange(&Change{}), probe.ErrClosed)
		})
	}
}

func TestBestRungIsTaken(t *testing.T) {
	privtest.Require(t)
	p, err := Open(Options{})
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, rungsHere(t)[0], p.Report().Rung)
}

func TestFireEndsWithItsContext(t *testing.T) {
	privtest.Require(t)
	p, err := Open(Options{})
	require.NoError(t, err)
	defer p.Close()
	before := p.Report()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Fire(ctx), context.Canceled)
	require.Equal(t, before, p.Report(), "a drill that could not be made says nothing of the rung")
}

func TestUnknownRungIsAnError(t *testing.T) {
	_, err := Open(Options{Rung: "fentry/tcp_sendmsg"})
	require.ErrorContains(t, err, `unknown rung "fentry/tcp_sendmsg": use one of iter/task_file:pid`)
}
