package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/vmtests/guest"
)

// fixtures are test binaries that behave as badly as they can; the one that
// takes the kernel with it comes before one that then cannot run.
var fixtures = []string{"passes", "leaves", "fails", "exits", "panics", "hangs"}

// requireQemu skips where no machine can be booted; CI must not skip.
func requireQemu(t *testing.T) {
	t.Helper()
	hosttest.NotShort(t, "it boots a machine")
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

// patience bounds a machine that should come to its end, on a busy host.
const patience = 5 * time.Minute

// booted is what came of a machine with fixtures.
type booted struct {
	problems map[string]string // by fixture
	broken   string            // what the machine itself died of
	measured []measurement
}

// bootFixtures runs fixtures on the oldest kernel as the program itself does. The
// machine is given up when the fixture stopAt begins.
func bootFixtures(t *testing.T, stopAt string, names ...string) booted {
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
	kernels, err := chooseKernels([]string{"5.10"})
	require.NoError(t, err)
	kernel := kernels[0]
	kernel.Skips = append(kernel.Skips, Skip{Package: "vmtests/testdata/passes", Test: "TestSkipsWithoutDeclaration"})
	o := options{cache: ".cache/kernels"}
	suites, err := buildSuites([]Kernel{kernel}, packages, work)
	require.NoError(t, err)
	s := suites[kernel.Arch]
	seen := newCollector(kernel, s.binaries)
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	timer := time.AfterFunc(patience, func() { stop(errors.New("out of patience")) })
	defer timer.Stop()
	see := func(line guest.Line) {
		seen.see(line)
		if line.Kind == guest.Begin && filepath.Base(line.Package) == stopAt {
			stop(errors.New("given up"))
		}
	}
	_, broken := runMachine(ctx, o, kernel, s, see, newPrinter(io.Discard, false))
	results, err := seen.results(broken)
	require.NoError(t, err)
	found := booted{problems: map[string]string{}, measured: seen.Measured}
	for _, r := range results {
		found.problems[filepath.Base(r.Package)] = r.Problem
	}
	if broken != nil {
		found.broken = broken.Error()
	}
	return found
}

func TestMachinesReportWhatHappens(t *testing.T) {
	found := bootFixtures(t, "", fixtures...)
	const died = "did not end: the machine died or was stopped first"
	require.Equal(t, map[string]string{
		"passes": "", "leaves": "", "fails": "exit status 1", "exits": "exit status 2", "panics": died, "hangs": died, "machine": "broke",
	}, found.problems, found.broken)
	require.Contains(t, found.broken, "machine died before its report was complete")
	require.Contains(t, found.broken, "Kernel panic - not syncing: sysrq triggered crash")
	require.Equal(t, []measurement{{Probe: "fixture", Rung: "first"}, {Probe: "fixture", Fault: "none", Result: "named", DelayMS: 1.5}}, found.measured)
}

func TestHangingMachineIsStopped(t *testing.T) {
	found := bootFixtures(t, "hangs", "fails", "hangs")
	require.Equal(t, "exit status 1", found.problems["fails"])
	require.Equal(t, "did not end: the machine died or was stopped first", found.problems["hangs"])
	require.Contains(t, found.broken, "machine hangs: given up")
}
