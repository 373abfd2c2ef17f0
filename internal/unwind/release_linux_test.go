package unwind_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/unwind/unwindtest"
)

// An open file keeps its mount busy: those of a process that has ended are closed, unless
// another has them, too.
func TestFilesGoWithTheLastProcessThatHasThem(t *testing.T) {
	hosttest.Require(t, "it reads the memory of another process")
	one, _ := unwindtest.Start(t)
	u, err := unwind.New(procfs.Open("").WithPatience(hosttest.Patience), 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	program, err := os.Readlink(filepath.Join("/proc", strconv.FormatUint(uint64(one), 10), "exe"))
	require.NoError(t, err)
	held := func() (n int) {
		names, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, name := range names {
			if file, err := os.Readlink("/proc/self/fd/" + name.Name()); err == nil && strings.HasPrefix(file, program) {
				n++
			}
		}
		return n
	}
	require.NoError(t, u.Prepare(one))
	require.NoError(t, u.Prepare(one))
	require.Equal(t, 1, held())
	u.Release(one + 1)
	require.Equal(t, 1, held(), "another process")
	u.Release(one)
	require.Eventually(t, func() bool { return held() == 0 }, hosttest.Patience, time.Millisecond)
}
