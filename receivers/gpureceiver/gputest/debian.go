package gputest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// NVIDIAsNVML is the true library, as Debian packages it in non-free, without a driver.
// Where the archive cannot be reached the test is skipped, in CI it fails.
func NVIDIAsNVML(t testing.TB) (file string) {
	t.Helper()
	const library = "usr/lib/*/nvidia/*/libnvidia-ml.so.*"
	root, err := exec.Command("go", "env", "GOMOD").Output()
	require.NoError(t, err)
	fetch := exec.Command("go", "run", "./vmtests/debfiles", "-suites", "trixie/non-free", "libnvidia-ml1", library)
	fetch.Dir = filepath.Dir(strings.TrimSpace(string(root)))
	output, err := fetch.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && os.Getenv("CI") == "" {
		t.Skipf("Debian's archive has to be reached for libnvidia-ml1: %s", failed.Stderr)
	} else if failed != nil {
		require.FailNow(t, "cannot fetch libnvidia-ml1", string(failed.Stderr))
	}
	require.NoError(t, err)
	var taken struct{ Folder string }
	require.NoError(t, json.Unmarshal(output, &taken))
	found, err := filepath.Glob(filepath.Join(taken.Folder, library))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}
