package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

func TestMatrixHoldsTheKernelsWePromise(t *testing.T) {
	kernels, err := parseKernels(kernelsFile)
	require.NoError(t, err)
	var names []string
	for _, k := range kernels {
		names = append(names, k.Name)
	}
	require.Subset(t, names, []string{
		"5.10", "5.10-pid", "6.1", "6.1-rt", "6.12", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "newest",
		"6.1-arm64", "6.12-arm64", "6.12-arm64-16k", "newest-arm64",
	})
}

func TestKernelsThatRunMostComeFirst(t *testing.T) {
	var s suite
	for _, name := range []string{"a", "b", "c"} {
		s.binaries = append(s.binaries, binary{testPackage: testPackage{Name: name}})
	}
	kernels := []Kernel{
		{Name: "one", Arch: "amd64", Only: []string{"a"}}, {Name: "all", Arch: "amd64"},
		{Name: "one more", Arch: "amd64", Only: []string{"c"}}, {Name: "two", Arch: "amd64", Only: []string{"a", "b"}},
	}
	require.Equal(t, []int{1, 3, 0, 2}, longestFirst(kernels, map[string]suite{"amd64": s}))
}

func TestMatrixErrorsNameTheLine(t *testing.T) {
	for text, problem := range map[string]string{
		"\nkernel 6.1 amd64 bookworm":                          "kernels.txt:2: want 'kernel NAME ARCH SUITES PACKAGES'",
		"kernel 6.1 riscv64 sid p":                             "only amd64 and arm64",
		"kernel 6.1 amd64 a p\nbeside 6.1 p 1 notadigest pool": "kernels.txt:2: want",
		"quick 9.9":                "line for kernel 9.9, which has no row above",
		"kernel 6.1 amd64 a p-*-*": "at most one *",
		"kernel 6.1 amd64 a p\nkernel 6.1 amd64 b q":           "stands here twice",
		"skip 6.1 bpf/kmsg TestX because":                      "line for kernel 6.1, which has no row above",
		"kernel 6.1 amd64 a p\nskip 6.1 bpf/kmsg TestNoReason": "kernels.txt:2: want",
		"kernel 6.1 amd64 a p\nsikp * bpf/kmsg TestX a typo":   "kernels.txt:2: want",
	} {
		_, err := parseKernels(text)
		require.ErrorContains(t, err, problem, text)
	}
}

func TestUnknownKernelIsAnsweredWithTheKnown(t *testing.T) {
	_, err := chooseKernels([]string{"4.4"})
	require.ErrorContains(t, err, "kernel 4.4 is not in kernels.txt; it has quick, 5.10, ")
	require.ErrorContains(t, err, ", newest, ")
}

const twoRows = `kernel a amd64 s p-*,q
kernel b arm64 s p
quick a
quick b bpf/... distro
later b bpf/kmsg TestA TestB
later b bpf/kmsg TestC
modules * fuse veth
modules b bridge
beside a linux-modules-1 1-1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa pool/m.deb
kernel c amd64 s p`

func TestLinesAboutARowHoldForThatRow(t *testing.T) {
	kernels, err := parseKernels(twoRows)
	require.NoError(t, err)
	require.Equal(t, []string{"p-*", "q"}, kernels[0].Package)
	require.Equal(t, []string{"fuse", "veth"}, kernels[0].Modules)
	require.Equal(t, []string{"fuse", "veth", "bridge"}, kernels[1].Modules)
	require.Empty(t, kernels[2].Modules, "* means the rows above")
	require.Equal(t, "linux-modules-1", kernels[0].Beside[0].Name)
	require.Empty(t, kernels[1].Beside)
}

func TestQuickSelectionIsSmallerThanARow(t *testing.T) {
	kernels, err := parseKernels(twoRows)
	require.NoError(t, err)
	names := func(chosen []Kernel) (list []string) {
		for _, k := range chosen {
			list = append(list, k.Name)
		}
		return list
	}
	quick, err := selectKernels(kernels, []string{"quick"})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names(quick))
	require.True(t, quick[0].Quick, "its tests are small")
	packages := []testPackage{{Name: "bpf/kmsg"}, {Name: "distro/x"}}
	s := suite{binaries: []binary{{testPackage: packages[0]}, {testPackage: packages[1]}}}
	require.Len(t, s.of(quick[0]), 2)
	require.Len(t, s.of(quick[1]), 1)
	require.Contains(t, arguments(options{}, quick[1].later("bpf/kmsg")), "-test.skip=^(TestA|TestB|TestC)$")
	require.Equal(t, arguments(options{}, nil), arguments(options{}, quick[1].later("distro/x")))
	require.Equal(t, arguments(options{}, nil), arguments(options{}, quick[0].later("bpf/kmsg")))
	require.True(t, wantedBy(quick, "amd64", packages[1]))
	require.False(t, wantedBy(quick, "arm64", packages[1]), "what no machine runs is not built")

	for _, selection := range [][]string{nil, {"b", "a"}} {
		whole, err := selectKernels(kernels, selection)
		require.NoError(t, err)
		for _, k := range whole {
			require.Len(t, s.of(k), 2, k.Name)
			require.False(t, k.Quick, "%s: its tests are of full size", k.Name)
			require.Empty(t, k.Later, k.Name)
		}
	}
}

func TestQuickRowsRunPackagesThatExist(t *testing.T) {
	kernels, err := parseKernels(kernelsFile)
	require.NoError(t, err)
	for _, k := range kernels {
		for _, name := range k.Only {
			require.DirExists(t, filepath.Join("..", strings.TrimSuffix(name, "/...")), k.Name)
		}
	}
}

func TestQuickRowsLeaveOutTestsThatExist(t *testing.T) {
	kernels, err := parseKernels(kernelsFile)
	require.NoError(t, err)
	for _, k := range kernels {
		for _, l := range k.Later {
			require.True(t, k.Quick && k.runs(testPackage{Name: l.Package}), "%s does not run %s", k.Name, l.Package)
			files, err := filepath.Glob(filepath.Join("..", l.Package, "*_test.go"))
			require.NoError(t, err)
			var source strings.Builder
			for _, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				source.Write(text)
			}
			for _, test := range l.Tests {
				require.Contains(t, source.String(), "\nfunc "+test+"(t *testing.T)", "%s of %s", test, l.Package)
			}
		}
	}
}

func TestOptionsThatCannotGoTogetherAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-results", "x", "-pkg", "./bpf/kmsg"}, {"-results", "x", "-run", "TestX"}, {"-results", "x", "-kernel", "5.10,quick"}, {"-results", "x", "-kept", "y"}, {"-parallel", "0"}, {"./bpf/kmsg"},
		{"-interpreters"}, {"-interpreters", "-kernel", "host"},
	} {
		_, err := parseFlags(args)
		require.Error(t, err, args)
	}
	_, err := parseFlags([]string{"-results", "x", "-kernel", "5.10"})
	require.NoError(t, err)
}

func TestOnlyTestsThatNeedAKernelAreChosen(t *testing.T) {
	list := `{"ImportPath":"` + module + `/bpf/kmsg","Dir":"/m/bpf/kmsg","TestGoFiles":["a_test.go"]}
{"ImportPath":"` + module + `/bpf/probe","Dir":"/m/bpf/probe"}
{"ImportPath":"` + module + `/patterns/rule","Dir":"/m/patterns/rule","TestGoFiles":["a_test.go"],"TestImports":["testing"]}
{"ImportPath":"` + module + `/distro/check","Dir":"/m/distro/check","XTestGoFiles":["a_test.go"],"XTestImports":["` + module + `/internal/privtest"]}
{"ImportPath":"` + module + `/receivers/x","Dir":"/m/receivers/x","TestGoFiles":["a_test.go","probe_test.go"],"TestImports":["` + module + `/internal/privtest"]}`
	chosen, err := choosePackages([]byte(list), true)
	require.NoError(t, err)
	require.Equal(t, []testPackage{{Name: "bpf/kmsg", Dir: "/m/bpf/kmsg"}, {Name: "distro/check", Dir: "/m/distro/check"}, {Name: "receivers/x", Dir: "/m/receivers/x"}}, chosen)
	_, err = choosePackages([]byte(`{"ImportPath":"x"}`), false)
	require.ErrorContains(t, err, "no tests to run on a kernel")
}

func TestBinaryPassesOnlyWhenEverythingDid(t *testing.T) {
	const name = "bpf/kmsg"
	output := func(text string) guest.Line { return guest.Line{Kind: guest.Output, Package: name, Text: text} }
	run, pass := output("\x16=== RUN   TestX\n"), output("\x16--- PASS: TestX (0.01s)\n\x16=== NAME  \nPASS\n")
	end := guest.Line{Kind: guest.End, Package: name}
	for label, tc := range map[string]struct {
		lines   []guest.Line
		built   error
		problem string
	}{
		"passed":         {lines: []guest.Line{run, pass, end}},
		"declared skip":  {lines: []guest.Line{output("\x16=== RUN   TestOld\n\x16--- SKIP: TestOld (0.00s)\n\x16=== NAME  \nPASS\n"), end}},
		"undeclared":     {lines: []guest.Line{run, output("\x16--- SKIP: TestX (0.00s)\n\x16=== NAME  \nPASS\n"), end}, problem: "skipped without a skip line in kernels.txt: TestX"},
		"failed":         {lines: []guest.Line{run, output("\x16--- FAIL: TestX (0.00s)\n\x16=== NAME  \nFAIL\n"), {Kind: guest.End, Package: name, Code: 1}}, problem: "exit status 1"},
		"lied":           {lines: []guest.Line{run, output("\x16--- FAIL: TestX (0.00s)\n\x16=== NAME  \nFAIL\n"), end}, problem: "tests failed"},
		"killed":         {lines: []guest.Line{run, {Kind: guest.End, Package: name, Code: 137, Error: "killed after 4m0s"}}, problem: "killed after 4m0s"},
		"machine died":   {lines: []guest.Line{run, pass}, problem: "did not end: the machine died or was stopped first"},
		"ran nothing":    {lines: []guest.Line{output("PASS\n"), end}, problem: "ran no test"},
		"no compile":     {built: errors.New("syntax"), problem: "does not compile"},
		"another's end":  {lines: []guest.Line{run, pass, {Kind: guest.End, Package: "bpf/other"}}, problem: "did not end: the machine died or was stopped first"},
		"stopped inside": {lines: []guest.Line{run, end}, problem: "a test started and never ended"},
	} {
		t.Run(label, func(t *testing.T) {
			kernel := Kernel{Name: "6.1", Skips: []Skip{{Package: name, Test: "TestOld", Reason: "not there"}}}
			seen := newCollector(kernel, []binary{{testPackage: testPackage{Name: name}, Err: tc.built}})
			for _, line := range tc.lines {
				seen.see(line)
			}
			results, err := seen.results(nil)
			require.NoError(t, err)
			require.Len(t, results, 1)
			require.Equal(t, tc.problem, results[0].Problem)
			events := results[0].finished("6.1")
			want := map[bool]string{true: "pass", false: "fail"}[tc.problem == ""]
			require.Equal(t, want, events[len(events)-1].Action)
		})
	}
}

func TestBrokenRunCountsEvenWhenAllBinariesEnded(t *testing.T) {
	seen := newCollector(Kernel{Name: "6.1"}, nil)
	results, err := seen.results(errors.New("qemu crashed"))
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.NotEmpty(t, results[0].Problem)
	require.Equal(t, "broke\nqemu crashed\n", results[0].finished("6.1")[0].Output)
}

func TestFailuresAreShownWithoutWhatPassed(t *testing.T) {
	text := withoutPasses([]testEvent{
		{Action: "output", Test: "TestGood", Output: "=== RUN TestGood\n"},
		{Action: "pass", Test: "TestGood"},
		{Action: "output", Test: "TestBad", Output: "bad_test.go:1: wrong\n"},
		{Action: "fail", Test: "TestBad"},
		{Action: "output", Test: "TestCut", Output: "=== RUN TestCut\n"},
		{Action: "output", Output: "panic: it stopped\n"},
	})
	require.Equal(t, "bad_test.go:1: wrong\n=== RUN TestCut\npanic: it stopped\n", text)
}
