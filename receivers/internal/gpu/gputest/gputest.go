// Package gputest makes GPUs for tests: a helper program as it is shipped, built
// with cgo, and a vendor's library whose GPUs follow a script, built from C and
// loaded as the true one is.
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

// module is this repository's.
const module = "github.com/tracecoreai/tracecore/"

// Stand is a vendor's library that stands in for the true one, and its helper.
type Stand struct {
	Helper  string // package of the program, in this module
	Library string // file name, as the helper asks for it
	Source  string // package whose testdata has the C file
	File    string // the C file
	Module  string // that brings the true headers
	Headers string // their folder in it
	Script  string // the environment variable that names the script
}

// Host is a machine with GPUs.
type Host struct {
	Helper  string // the program
	Library string // the file

	t      testing.TB
	stand  Stand
	script string
}

// New builds helper and library; the GPUs are healthy until Script says
// otherwise. Without a C compiler the test is skipped, in CI it fails.
func New(t testing.TB, stand Stand) *Host {
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
		t: t, stand: stand, Helper: filepath.Join(folder, filepath.Base(stand.Helper)),
		Library: filepath.Join(folder, stand.Library), script: filepath.Join(folder, "script"),
	}
	h.buildHelper()
	h.Build(h.Library)
	h.Script()
	t.Setenv(stand.Script, h.script)
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
	build := exec.Command("go", "build", "-o", h.Helper, module+h.stand.Helper)
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
	h.run(build)
}

// Build compiles the library to a file, against the true headers.
func (h *Host) Build(file string, options ...string) {
	h.t.Helper()
	arguments := append([]string{
		"-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
		"-I", Headers(h.t, h.stand.Module, h.stand.Headers), "-o", file,
	}, options...)
	h.run(exec.Command("cc", append(arguments, filepath.Join(located(h.t, "list", "-f", "{{.Dir}}", module+h.stand.Source), "testdata", h.stand.File), "-lpthread")...))
}

// Headers is a folder of a module that this one needs.
func Headers(t testing.TB, of, folder string) string {
	return filepath.Join(located(t, "list", "-m", "-f", "{{.Dir}}", of), folder)
}

func located(t testing.TB, arguments ...string) string {
	t.Helper()
	output, err := exec.Command("go", arguments...).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(output))
}

func (h *Host) run(command *exec.Cmd) {
	h.t.Helper()
	output, err := command.CombinedOutput()
	require.NoError(h.t, err, string(output))
}
