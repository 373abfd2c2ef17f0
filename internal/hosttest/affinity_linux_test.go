package hosttest_test

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

func TestProcessesShareOneCPUAndThisOneKeepsAll(t *testing.T) {
	var before, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	var allowed []byte
	hosttest.OnOneCPU(t, func() {
		var err error
		allowed, err = exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output()
		require.NoError(t, err)
	})
	require.Regexp(t, regexp.MustCompile(`^Cpus_allowed_list:\s+\d+\n$`), string(allowed))
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, before, after)
}
