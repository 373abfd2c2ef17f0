// Package gputest makes NVIDIA GPUs for tests. It builds the program tracecore-gpu as it is
// shipped, with cgo, and stand-ins for NVIDIA's libraries, whose GPUs follow a script
// (testdata/*.c). The stand-ins are built against the true headers and loaded as the true
// libraries are.
package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// receiver is the package that these GPUs are for.
const receiver = "github.com/tracecoreai/tracecore/receivers/gpureceiver"

// Endpoint is where the host engine of the stand-in listens.
const Endpoint = "unix:///run/stand-in.sock"

// Host is a machine with GPUs.
type Host struct {
	Helper string // the program
	NVML   *Library
	DCGM   *Library
}

// Library stands in for one of NVIDIA's.
type Library struct {
	File string

	t       testing.TB
	script  string
	source  string // the C file
	headers string // folder of the true headers
}

// New builds helper and libraries; the GPUs are healthy until a script says
// otherwise. Without a C compiler the test is skipped, in CI it fails.
func New(t testing.TB) *Host {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the libraries are for Linux")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("CI") != "" {
			require.FailNow(t, "no C compiler: run make deps")
		}
		t.Skip("no C compiler (cc), which helper and libraries need")
	}
	t.Setenv("TRACECORE_DCGM_ADDRESS", Endpoint)
	h := &Host{
		Helper: filepath.Join(t.TempDir(), "tracecore-gpu"),
		NVML:   newLibrary(t, "libnvidia-ml.so.1", "libnvidia-ml.c", NVMLHeaders(t), "TRACECORE_NVML_SCRIPT"),
		DCGM:   newLibrary(t, "libdcgm.so.4", "libdcgm.c", DCGMHeaders(t), "TRACECORE_DCGM_SCRIPT"),
	}
	build := exec.Command("go", "build", "-o", h.Helper, receiver+"/cmd/tracecore-gpu")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
	run(t, build)
	return h
}

// newLibrary builds a library; variable names its script.
func newLibrary(t testing.TB, file, source, headers, variable string) *Library {
	t.Helper()
	folder := t.TempDir()
	l := &Library{
		t: t, File: filepath.Join(folder, file), script: filepath.Join(folder, "script"),
		source: filepath.Join(located(t, "list", "-f", "{{.Dir}}", receiver+"/gputest"), "testdata", source), headers: headers,
	}
	l.Build(l.File)
	l.Script()
	t.Setenv(variable, l.script)
	return l
}

// Folder is where the library is.
func (l *Library) Folder() string { return filepath.Dir(l.File) }

// Script says what the GPUs do from the next call on, one line each.
func (l *Library) Script(lines ...string) {
	l.t.Helper()
	next := l.script + ".next"
	require.NoError(l.t, os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	require.NoError(l.t, os.Rename(next, l.script))
}

// Build compiles the library to a file.
func (l *Library) Build(file string, options ...string) {
	l.t.Helper()
	arguments := append([]string{
		"-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-I", l.headers, "-o", file,
	}, options...)
	run(l.t, exec.Command("cc", append(arguments, l.source, "-lpthread")...))
}

// NVMLHeaders is the folder of NVML's headers.
func NVMLHeaders(t testing.TB) string { return ofModule(t, "github.com/NVIDIA/go-nvml", "pkg/nvml") }

// DCGMHeaders is the folder of DCGM's headers.
func DCGMHeaders(t testing.TB) string { return ofModule(t, "github.com/NVIDIA/go-dcgm", "pkg/dcgm") }

// ofModule is a folder of a module that this one needs.
func ofModule(t testing.TB, module, folder string) string {
	return filepath.Join(located(t, "list", "-m", "-f", "{{.Dir}}", module), folder)
}

func located(t testing.TB, arguments ...string) string {
	t.Helper()
	output, err := exec.Command("go", arguments...).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(output))
}

func run(t testing.TB, command *exec.Cmd) {
	t.Helper()
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}
