// Package nvmltest makes NVIDIA GPUs for tests: the helper program as it is
// shipped, built with cgo, and a libnvidia-ml.so.1 whose GPUs follow a script,
// built from C and loaded as the true one is.
package nvmltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scriptVariable names the script to the library; see testdata/libnvidia-ml.c.
const scriptVariable = "TRACECORE_NVML_SCRIPT"

// Host is a machine with GPUs: the receiver's settings helper and library.
type Host struct {
	Helper  string
	Library string

	t      testing.TB
	script string
}

// New builds helper and library; the library's GPUs are healthy until Script
// says otherwise. Without a C compiler the test is skipped, in CI it fails.
func New(t testing.TB) *Host {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the library is for Linux")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("CI") != "" {
			require.FailNow(t, "no C compiler: run make deps")
		}
		t.Skip("no C compiler (cc), which helper and library need")
	}
	folder := t.TempDir()
	h := &Host{
		t: t, Helper: filepath.Join(folder, "tracecore-nvml"), Library: filepath.Join(folder, "libnvidia-ml.so.1"),
		script: filepath.Join(folder, "script"),
	}
	h.buildHelper()
	h.buildLibrary()
	h.Script()
	t.Setenv(scriptVariable, h.script)
	return h
}

// Script says what the GPUs do from the next call on, one line each.
func (h *Host) Script(lines ...string) {
	h.t.Helper()
	next := h.script + ".next"
	require.NoError(h.t, os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	require.NoError(h.t, os.Rename(next, h.script))
}

func (h *Host) buildHelper() {
	build := exec.Command("go", "build", "-o", h.Helper, "github.com/tracecoreai/tracecore/receivers/nvmlreceiver/cmd/tracecore-nvml")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
	h.run(build)
}

// buildLibrary compiles against the nvml.h that go-nvml brings.
func (h *Host) buildLibrary() {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	require.NoError(h.t, err)
	located, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/tracecoreai/tracecore/receivers/nvmlreceiver/nvmltest").Output()
	require.NoError(h.t, err)
	folder := strings.TrimSpace(string(located))
	h.run(exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
		"-I", filepath.Join(strings.TrimSpace(string(module)), "pkg", "nvml"), "-o", h.Library,
		filepath.Join(folder, "testdata", "libnvidia-ml.c"), "-lpthread"))
}

func (h *Host) run(command *exec.Cmd) {
	h.t.Helper()
	output, err := command.CombinedOutput()
	require.NoError(h.t, err, string(output))
}
