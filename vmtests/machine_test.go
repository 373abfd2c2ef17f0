package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fixtures are test binaries that behave as badly as they can; the one that
// takes the kernel with it comes before one that then cannot run.
var fixtures = []string{"passes", "leaves", "fails", "exits", "panics", "hangs"}

// requireQemu skips where no machine can be booted; CI must not skip.
func requireQemu(t *testing.T) {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "busybox", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must boot machines: %s is missing, run `make deps`", program)
		}
		t.Skipf("boots a machine: %s is missing, run `make deps`", program)
	}
}

// bootFixtures runs fixtures on the 6.12 kernel as the program itself does.
func bootFixtures(t *testing.T, limit time.Duration, names ...string) (map[string]string, string) {
	t.Helper()
	requireQemu(t)
	t.Chdir("..")
	var patterns []string
	for _, name := range names {
		patterns = append(patterns, "./vmtests/testdata/"+name)
	}
	work := t.TempDir()
	listed, err := findPackages(patterns)
	require.NoError(t, err)
	require.Len(t, listed, len(names))
	var packages []testPackage // the go command sorts them
	for _, name := range names {
		packages = append(packages, testPackage{Name: "vmtests/testdata/" + name, Dir: filepath.Join("vmtests/testdata", name)})
	}
	kernels, err := chooseKernels([]string{"6.12"})
	require.NoError(t, err)
	kernel := kernels[0]
	kernel.Skips = append(kernel.Skips, Skip{Package: "vmtests/testdata/passes", Test: "TestSkipsWithoutDeclaration"})
	o := options{cache: ".cache/kernels"}
	suites, err := buildSuites([]Kernel{kernel}, packages, work)
	require.NoError(t, err)
	s := suites[kernel.Arch]
	seen := newCollector(kernel, s.binaries)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, broken := runMachine(ctx, o, kernel, s, seen.see, newPrinter(io.Discard, false))
	results, err := seen.results(broken)
	require.NoError(t, err)
	problems := map[string]string{}
	for _, r := range results {
		problems[filepath.Base(r.Package)] = r.Problem
	}
	if broken == nil {
		return problems, ""
	}
	return problems, broken.Error()
}

func TestMachinesReportWhatHappens(t *testing.T) {
	problems, broken := bootFixtures(t, 5*time.Minute, fixtures...)
	const died = "did not end: the machine died or was stopped first"
	require.Equal(t, map[string]string{
		"passes": "", "leaves": "", "fails": "exit status 1", "exits": "exit status 2", "panics": died, "hangs": died, "machine": "broke",
	}, problems, broken)
	require.Contains(t, broken, "machine died before its report was complete")
	require.Contains(t, broken, "Kernel panic - not syncing: sysrq triggered crash")
}

func TestHangingMachineIsStopped(t *testing.T) {
	problems, broken := bootFixtures(t, 20*time.Second, "fails", "hangs")
	require.Equal(t, "exit status 1", problems["fails"])
	require.Equal(t, "did not end: the machine died or was stopped first", problems["hangs"])
	require.Contains(t, broken, "machine hangs")
}
