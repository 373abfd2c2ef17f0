package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

func TestMeasurementsMustSaySomething(t *testing.T) {
	for text, problem := range map[string]string{
		`{"probe":"kmsg","rung":"tp_btf/console"}`:                        "",
		`{"probe":"kmsg","fault":"xid","result":"named","delay_ms":12.5}`: "",
		`{"probe":"kmsg","program":"console","instructions":11201}`:       "",
		`{"probe":"kmsg","delay":12}`:                                     "cannot be read",
		`{"probe":"kmsg","program":"console","instructions":"many"}`:      "cannot be read",
		`{"probe":"kmsg"}`:          "measurement of nothing",
		`{"rung":"tp_btf/console"}`: "measurement of nothing",
		`panic: out of disk`:        "cannot be read",
		`{"probe":"kmsg","fault":"xid","result":"named","delay_ms":"very long`: "cannot be read",
	} {
		_, err := parseMeasurement(text)
		if problem == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, problem, text)
		}
	}
}

func TestMeasurementThatCannotBeReadFailsItsBinary(t *testing.T) {
	const name = "bpf/kmsg"
	seen := newCollector(Kernel{Name: "6.1"}, []binary{{testPackage: testPackage{Name: name}}})
	for _, line := range []guest.Line{
		{Kind: guest.Boot, Text: "6.1.0"},
		{Kind: guest.Output, Package: name, Text: "\x16=== RUN   TestX\n\x16--- PASS: TestX (0.01s)\n\x16=== NAME  \nPASS\n"},
		{Kind: guest.Measured, Package: name, Text: `{"probe":"kmsg","rung":"kprobe"}`},
		{Kind: guest.Measured, Package: name, Text: "half a li"},
		{Kind: guest.End, Package: name},
	} {
		seen.see(line)
	}
	results, err := seen.results(nil)
	require.NoError(t, err)
	require.Contains(t, results[0].Problem, "cannot be read")
	require.Equal(t, []measurement{{Probe: "kmsg", Rung: "kprobe"}}, seen.Measured)
}

func TestSecondBootStartsWithNothing(t *testing.T) {
	const name = "bpf/kmsg"
	seen := newCollector(Kernel{Name: "6.1"}, []binary{{testPackage: testPackage{Name: name}}})
	seen.see(guest.Line{Kind: guest.Boot, Text: "6.1.0"})
	seen.see(guest.Line{Kind: guest.Output, Package: name, Text: "from the first\n"})
	seen.see(guest.Line{Kind: guest.Measured, Package: name, Text: `{"probe":"kmsg","rung":"kprobe"}`})
	seen.see(guest.Line{Kind: guest.End, Package: name})
	seen.see(guest.Line{Kind: guest.Boot, Text: "6.1.0"})
	results, err := seen.results(nil)
	require.NoError(t, err)
	require.Empty(t, results[0].Output)
	require.Equal(t, "did not end: the machine died or was stopped first", results[0].Problem)
	require.Empty(t, seen.Measured)
}

// measuredRow is what a run on one kernel may have found.
func measuredRow(kernel string, instructions int) row {
	return row{Kernel: kernel, Package: "linux-image-" + kernel, Version: "1", Release: kernel, Date: "2026-11-21", Host: "2 CPUs", Given: 3, Passed: 2, Seconds: 61.5, Measured: []measurement{
		{Probe: "kmsg", Fault: "xid", Result: "named", DelayMS: 141.4},
		{Probe: "kmsg", Rung: "tp_btf/console"},
		{Probe: "oomkill", Fault: "oom", Result: "missed"},
		{Probe: "kmsg", Program: "console", Instructions: instructions},
	}}
}

func TestTablesKeepTheRowsOfOtherRuns(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, writeMatrix(dir, []row{measuredRow("6.12", 100), measuredRow("gone", 1)}))
	require.NoError(t, writeMatrix(dir, []row{measuredRow("5.10", 200), {Kernel: "6.12", Given: 3}}), "one that did not boot")

	rows, err := readMatrix(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]row{"5.10": measuredRow("5.10", 200), "6.12": measuredRow("6.12", 100)}, rows)
	results, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	require.NoError(t, err)
	require.Contains(t, string(results), "| kernel | package | kmsg | oomkill | packages | time | date, commit |\n| --- | --- | --- | --- | --- | --- | --- |\n"+
		"| 5.10 | linux-image-5.10 1 | `tp_btf/console`; xid named, 141 ms | **oom missed** | 2 of 3 | 62 s | 2026-11-21 |\n| 6.12 |")
	instructions, err := os.ReadFile(filepath.Join(dir, "INSTRUCTIONS.md"))
	require.NoError(t, err)
	require.Contains(t, string(instructions), "| probe, program | 5.10 | 6.12 |\n| --- | --- | --- |\n| kmsg console | 200 | 100 |\n")
}

func TestRowIsSummedUpInALine(t *testing.T) {
	require.Equal(t, "kmsg `tp_btf/console`; xid named, 141 ms, oomkill **oom missed**", measuredRow("6.12", 1).summary())
	require.Equal(t, "no test measured anything", row{}.summary())
}

func TestDamagedTableIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, matrixFile)
	require.NoError(t, os.WriteFile(file, []byte("[{"), 0o644))
	require.ErrorContains(t, writeMatrix(dir, nil), "take it from git again")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "[{", string(text))
}

func TestProgramsThatGotMuchDearerAreNamed(t *testing.T) {
	recorded := func(instructions int) map[string]row {
		return map[string]row{"6.12": measuredRow("6.12", instructions)}
	}
	require.Empty(t, jumps(recorded(10_000), []row{measuredRow("6.12", 12_000), measuredRow("6.1", 99_999)}))
	require.Empty(t, jumps(recorded(15), []row{measuredRow("6.12", 1015)}), "a thousandth of what the verifier takes")
	require.Equal(t, []string{"6.12: kmsg console costs the verifier 12001 instructions, 10000 when 6.12 was recorded (2026-11-21, +20 %)"},
		jumps(recorded(10_000), []row{measuredRow("6.12", 12_001)}))
}

func TestTablesInTheTreeAreThoseOfTheirData(t *testing.T) {
	kept, err := readMatrix(".")
	require.NoError(t, err)
	dir := t.TempDir()
	var rows []row
	for _, r := range kept {
		rows = append(rows, r)
	}
	require.NoError(t, writeMatrix(dir, rows))
	for _, name := range []string{matrixFile, "RESULTS.md", "INSTRUCTIONS.md"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err, "make vmtest writes it")
		require.Equal(t, string(want), string(got), name)
	}
}

func TestOnlyTheEmulatorsOwnFaultIsForgiven(t *testing.T) {
	console := filepath.Join(t.TempDir(), "console")
	for text, broke := range map[string]bool{
		"Oops: int3: 0000 [#1] SMP NOPTI\nRIP: 0010:sched_clock_cpu+0x1/0xc0": true,
		"Kernel panic - not syncing: sysrq triggered crash":                   false,
		"BUG: kernel NULL pointer dereference\nOops: 0000 [#1]":               false,
		"": false,
	} {
		require.NoError(t, os.WriteFile(console, []byte(text), 0o644))
		require.Equal(t, broke, emulatorBroke(console), text)
	}
	require.False(t, emulatorBroke(filepath.Join(t.TempDir(), "absent")))
}
