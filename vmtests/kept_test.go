package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/vmtests/guest"
	"github.com/tracecoreai/tracecore/vmtests/machine"
)

// given makes a payload of two packages; the second knows the agent's binary.
func given(t *testing.T, write map[string]string) machine.Payload {
	dir := t.TempDir()
	p := machine.Payload{Init: filepath.Join(dir, "init"), Files: map[string]string{}}
	files := map[string]string{
		"init": "init", agentPath: "agent", guest.ModulesDir + "/1.ko": "fuse",
		"/src/bpf/a/a.test": "tests of a", "/src/bpf/a/testdata/x": "data",
		"/src/bpf/ab/ab.test": "tests of ab that read $" + binaryVariable,
	}
	for inside, text := range write {
		files[inside] = text
	}
	for inside, text := range files {
		here := filepath.Join(dir, filepath.FromSlash(inside))
		require.NoError(t, os.MkdirAll(filepath.Dir(here), 0o755))
		require.NoError(t, os.WriteFile(here, []byte(text), 0o644))
		if inside != "init" {
			p.Files[inside] = here
		}
	}
	for _, name := range []string{"a", "ab"} {
		p.Manifest.Tests = append(p.Manifest.Tests, guest.Test{Package: "bpf/" + name, Path: "/src/bpf/" + name + "/" + name + ".test", Dir: "/src/bpf/" + name})
	}
	return p
}

// remaining says which packages have to run, and tells what ends of those that did.
func remaining(t *testing.T, dir, kernel string, p machine.Payload, ends ...guest.Line) (names []string, again []guest.Line) {
	k := newKept(dir, kernel)
	again, err := k.take(&p)
	require.NoError(t, err)
	see := k.watch(func(guest.Line) {})
	see(guest.Line{Kind: guest.Boot, Text: "6.1.0\n"})
	for _, test := range p.Manifest.Tests {
		names = append(names, test.Package)
	}
	for _, end := range ends {
		see(guest.Line{Kind: guest.Begin, Package: end.Package})
		see(guest.Line{Kind: guest.Output, Package: end.Package, Text: "\x16=== RUN   TestX\n\x16--- PASS: TestX (0.01s)\n\x16=== NAME  \nPASS\n"})
		see(end)
	}
	return names, again
}

func TestWhatPassedAndHasNotChangedIsToldAgain(t *testing.T) {
	dir := t.TempDir()
	a, ab := guest.Line{Kind: guest.End, Package: "bpf/a"}, guest.Line{Kind: guest.End, Package: "bpf/ab"}
	names, again := remaining(t, dir, "linux 1", given(t, nil), a, ab)
	require.Equal(t, []string{"bpf/a", "bpf/ab"}, names)
	require.Empty(t, again)

	names, again = remaining(t, dir, "linux 1", given(t, nil))
	require.Empty(t, names)
	seen := newCollector(Kernel{Name: "6.1"}, []binary{{testPackage: testPackage{Name: "bpf/a"}}, {testPackage: testPackage{Name: "bpf/ab"}}})
	for _, line := range again {
		seen.see(line)
	}
	results, err := seen.results(nil)
	require.NoError(t, err)
	require.Equal(t, "6.1.0", seen.Release)
	for _, r := range results {
		require.Empty(t, r.Problem)
		require.True(t, r.Kept)
		require.Equal(t, 1, r.Passed)
	}

	both := []string{"bpf/a", "bpf/ab"}
	for inside, want := range map[string][]string{
		"init": both, guest.ModulesDir + "/1.ko": both, guest.ModulesDir + "/2.ko": both,
		agentPath: {"bpf/ab"}, "/src/bpf/a/a.test": {"bpf/a"}, "/src/bpf/a/testdata/x": {"bpf/a"}, "/src/bpf/ab/more": {"bpf/ab"},
	} {
		names, _ := remaining(t, dir, "linux 1", given(t, map[string]string{inside: "changed"}))
		require.Equal(t, want, names, inside)
	}
	names, _ = remaining(t, dir, "linux 2", given(t, nil))
	require.Equal(t, both, names, "another kernel")
	small := given(t, nil)
	small.Manifest.Env = []string{"SMALL=true"}
	names, _ = remaining(t, dir, "linux 1", small)
	require.Equal(t, both, names, "another environment")
	names, _ = remaining(t, "", "linux 1", given(t, nil))
	require.Equal(t, both, names, "nothing is kept without a folder")
}

func TestOnlyWhatEndedWellIsKept(t *testing.T) {
	for label, end := range map[string]guest.Line{
		"failed":      {Kind: guest.End, Package: "bpf/a", Code: 1},
		"killed":      {Kind: guest.End, Package: "bpf/a", Error: "killed after 20m0s"},
		"no end":      {Kind: guest.Alive, Package: "bpf/a"},
		"not a given": {Kind: guest.End, Package: "bpf/stranger"},
	} {
		dir := t.TempDir()
		remaining(t, dir, "linux 1", given(t, nil), end)
		names, _ := remaining(t, dir, "linux 1", given(t, nil))
		require.Equal(t, []string{"bpf/a", "bpf/ab"}, names, label)
	}
	dir := t.TempDir()
	remaining(t, dir, "linux 1", given(t, nil), guest.Line{Kind: guest.End, Package: "bpf/a"})
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, files[0].Name()), []byte("cut [{"), 0o644))
	names, _ := remaining(t, dir, "linux 1", given(t, nil))
	require.Equal(t, []string{"bpf/a", "bpf/ab"}, names, "a damaged file is none")
}

func TestTheHostRunsAgainWhatHasChanged(t *testing.T) {
	dir, ran, o := t.TempDir(), filepath.Join(t.TempDir(), "ran"), options{kept: t.TempDir()}
	path := filepath.Join(dir, "a.test")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho \"$CI\" >>"+ran+"\n"), 0o755))
	run := func() (told []guest.Kind) {
		require.NoError(t, runHost(o, Kernel{Name: hostName}, []binary{{testPackage: testPackage{Name: "bpf/a", Dir: dir}, Path: path}}, func(l guest.Line) { told = append(told, l.Kind) }))
		return told
	}
	require.Equal(t, []guest.Kind{guest.Boot, guest.Begin, guest.End}, run())
	require.Equal(t, []guest.Kind{guest.Boot, guest.Kept, guest.End}, run())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), []byte("other"), 0o600))
	require.Contains(t, run(), guest.Begin)
	text, err := os.ReadFile(ran)
	require.NoError(t, err)
	require.Equal(t, "true\ntrue\n", string(text))
}

// The second boot of a machine that the emulator broke runs what had not passed, and the rest counts.
func TestASecondBootRunsWhatHadNotPassed(t *testing.T) {
	k, p := newKept("", "linux 1"), given(t, nil)
	seen := newCollector(Kernel{Name: "6.1"}, []binary{{testPackage: testPackage{Name: "bpf/a"}}, {testPackage: testPackage{Name: "bpf/ab"}}})
	see := k.watch(seen.see)
	says := func(name string, code int) {
		see(guest.Line{Kind: guest.Begin, Package: name})
		see(guest.Line{Kind: guest.Output, Package: name, Text: "\x16=== RUN   TestX\n\x16--- PASS: TestX (0.01s)\n\x16=== NAME  \nPASS\n"})
		if code >= 0 {
			see(guest.Line{Kind: guest.End, Package: name, Code: code})
		}
	}
	boot := guest.Line{Kind: guest.Boot, Text: "6.1.0\n"}
	see(boot)
	says("bpf/a", 0)
	says("bpf/ab", -1) // here it broke
	passed := k.passed()
	left := without(p, passed)
	require.Equal(t, "bpf/ab", left.Manifest.Tests[0].Package)
	require.Len(t, left.Manifest.Tests, 1)
	require.Len(t, p.Manifest.Tests, 2)

	see(boot)
	says("bpf/ab", 0)
	for _, line := range passed["bpf/a"] {
		seen.see(line)
	}
	results, err := seen.results(nil)
	require.NoError(t, err)
	for _, r := range results {
		require.Empty(t, r.Problem)
		require.Equal(t, 1, r.Passed, r.Package)
		require.Equal(t, r.Package == "bpf/a", r.Kept)
	}

	failed := newKept("", "linux 1")
	see = failed.watch(func(guest.Line) {})
	says("bpf/a", 1)
	require.Empty(t, failed.passed(), "what failed is run again")
}
