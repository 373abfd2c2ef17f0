package memorylimit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// childVariable marks the test binary that only applies the limit and prints it.
const childVariable = "TRACECORE_TEST_PRINT_LIMIT"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if err := Apply(Collector); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(debug.SetMemoryLimit(-1))
}

func TestSmallestAncestorCounts(t *testing.T) {
	hosttest.Require(t, "it makes memory cgroups")
	outer := hosttest.NewMemoryCgroup(t, 200<<20)
	for name, inner := range map[string]int64{"the cgroup itself has none": 0, "the cgroup itself has more": 400 << 20} {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, Collector*(200<<20), limitIn(t, outer.Child(t, inner)), 4096)
		})
	}
	t.Run("the cgroup itself has less", func(t *testing.T) {
		require.InDelta(t, Collector*(100<<20), limitIn(t, outer.Child(t, 100<<20)), 4096)
	})
}

// limitIn is the limit that a process takes which starts in the cgroup.
func limitIn(t *testing.T, group hosttest.MemoryCgroup) int64 {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, group.Start(cmd))
	require.NoError(t, cmd.Wait(), out.String())
	n, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
	require.NoError(t, err)
	return n
}
