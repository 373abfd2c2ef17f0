package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// countOf returns the closing line for a step that ended with the status.
func countOf(t *testing.T, dir, status string) (string, error) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "stages"), []byte("unit "+status+" 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := summarise(&out, dir)
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	return lines[len(lines)-1], err
}

func TestCountsAreThoseOfTheTests(t *testing.T) {
	const a, b = `{"Action":"pass","Package":"a","Test":"T"}`, `{"Action":"pass","Package":"a"}`
	for name, tc := range map[string]struct {
		status, events, want string
		fails                bool
	}{
		"all pass":               {"0", a + "\n" + b, "1 passed, 0 failed, 0 skipped", false},
		"one fails":              {"1", a + "\n" + `{"Action":"fail","Package":"a","Test":"U"}` + "\n" + `{"Action":"fail","Package":"a"}`, "1 passed, 1 failed, 0 skipped", true},
		"skip counts":            {"0", a + "\n" + `{"Action":"skip","Package":"a","Test":"S"}`, "1 passed, 0 failed, 1 skipped", false},
		"package died":           {"1", a + "\n" + `{"Action":"fail","Package":"a"}`, "1 passed, 1 failed, 0 skipped", true},
		"command died":           {"2", a, "1 passed, 1 failed, 0 skipped", true},
		"no test at all":         {"0", "", "0 passed, 1 failed, 0 skipped", true},
		"not even events":        {"1", "go: cannot find module", "0 passed, 1 failed, 0 skipped", true},
		"package without a test": {"0", a + "\n" + `{"Action":"skip","Package":"empty"}`, "1 passed, 0 failed, 0 skipped", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := filepath.Join(dir, "events")
			if err := os.WriteFile(script, []byte(tc.events+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			err := runStep(dir, "unit", true, []string{"sh", "-c", "cat " + script + "; exit " + tc.status})
			if (err == nil) != (tc.status == "0") {
				t.Errorf("step's own error: %v", err)
			}
			got, err := countOf(t, dir, tc.status)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if (err != nil) != tc.fails {
				t.Errorf("summary's error: %v", err)
			}
		})
	}
}

func TestChecksCountAsOne(t *testing.T) {
	dir := t.TempDir()
	if err := runStep(dir, "unit", false, []string{"true"}); err != nil {
		t.Error(err)
	}
	if err := runStep(dir, "unit", false, []string{"false"}); err == nil {
		t.Error("a failing command passed")
	}
	if err := runStep(dir, "unit", false, []string{"no-such-command"}); err == nil {
		t.Error("an absent command passed")
	}
	got, err := countOf(t, dir, "1")
	if got != "1 passed, 2 failed, 0 skipped" || err == nil {
		t.Error(got, err)
	}
}

func TestSkipsShowTheirReason(t *testing.T) {
	var shown, record bytes.Buffer
	stream := `{"Action":"output","Package":"a","Test":"S","Output":"=== RUN   S\n"}
{"Action":"output","Package":"a","Test":"S","Output":"    s_test.go:3: needs root\n"}
{"Action":"output","Package":"a","Test":"S","Output":"--- SKIP: S\n"}
{"Action":"skip","Package":"a","Test":"S"}
`
	if _, err := show(&shown, strings.NewReader(stream), &record); err != nil {
		t.Fatal(err)
	}
	if want := `"Output":"s_test.go:3: needs root"`; !strings.Contains(record.String(), want) {
		t.Errorf("%s is not in %s", want, record.String())
	}
}

func TestFailedBuildShowsTheCompilersWords(t *testing.T) {
	var shown, record bytes.Buffer
	stream := `{"Action":"build-output","ImportPath":"m/a [m/a.test]","Output":"a.go:1: undefined: x\n"}
{"Action":"build-fail","ImportPath":"m/a [m/a.test]"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a [build failed]\n"}
{"Action":"fail","Package":"m/a","FailedBuild":"m/a [m/a.test]"}
`
	failed, err := show(&shown, strings.NewReader(stream), &record)
	if err != nil || failed != 1 {
		t.Fatal(failed, err)
	}
	if !strings.Contains(shown.String(), "undefined: x") {
		t.Error(shown.String())
	}
}

func TestSummaryEndsWithWhatFailedAndWhy(t *testing.T) {
	dir := t.TempDir()
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf(`{"Action":"output","Package":"a","Test":"T","Output":"line %d\n"}`, i))
	}
	events := strings.Join(lines, "\n") + `
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Output":"FAIL\ta\n"}
{"Action":"fail","Package":"a"}
{"Action":"output","Package":"b","Output":"panic: it stopped\n"}
{"Action":"fail","Package":"b"}
`
	script := filepath.Join(dir, "events")
	if err := os.WriteFile(script, []byte(events), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := runStep(dir, "unit", true, []string{"sh", "-c", "cat " + script + "; exit 1"}); err == nil {
		t.Error("a failing command passed")
	}
	if err := runStep(dir, "unit", false, []string{"sh", "-c", "echo gofmt says; exit 1"}); err == nil {
		t.Error("a failing command passed")
	}
	if err := os.WriteFile(filepath.Join(dir, "stages"), []byte("unit 1 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NO_COLOR", "1")
	var out bytes.Buffer
	if err := summarise(&out, dir); err == nil {
		t.Error("failures passed")
	}
	_, end, _ := strings.Cut(out.String(), "FAIL unit: a T\n")
	want := strings.Join([]string{"line 0", "line 1", "line 2", "line 3", "line 4", "line 5", "… 24 lines",
		"line 30", "line 31", "line 32", "line 33", "line 34", "line 35", "line 36", "line 37", "line 38", "line 39",
		"FAIL unit: b", "panic: it stopped", "FAIL unit: unit unit", "gofmt says", "", "0 passed, 3 failed, 0 skipped", ""}, "\n")
	if got := strings.ReplaceAll(end, "       ", ""); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummaryWithoutStepsIsAnError(t *testing.T) {
	if err := summarise(&bytes.Buffer{}, t.TempDir()); err == nil {
		t.Error("an empty folder passed")
	}
}
