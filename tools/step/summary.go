package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// errFailed says nothing that the counts have not said.
var errFailed = errors.New("tests failed")

// count is what one step or all of them came to.
type count struct{ passed, failed, skipped int }

func (c *count) add(other count) {
	c.passed += other.passed
	c.failed += other.failed
	c.skipped += other.skipped
}

// result is what the file of one step says.
type result struct {
	count
	failures []failure
	skips    []string
}

// failure is a test that failed and what it printed.
type failure struct {
	name  string
	words []string
}

// summarise counts every step that DIR/stages lists ("name exit-status seconds" a line)
// and ends with what failed and why, and the plain line that machines read: who
// keeps no more than the end of a long log still sees what to mend.
func summarise(w io.Writer, dir string) error {
	stages, err := readStages(filepath.Join(dir, "stages"))
	if err != nil {
		return err
	}
	var total count
	var failures []failure
	fmt.Fprintln(w, cyan("== summary"))
	for _, s := range stages {
		r, err := readResult(filepath.Join(dir, s.name+".json"))
		if err != nil {
			return err
		}
		r.compare(s)
		r.print(w, s)
		total.add(r.count)
		for _, f := range r.failures {
			failures = append(failures, failure{s.name + ": " + f.name, f.words})
		}
	}
	for _, f := range failures {
		f.print(w)
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	if total.failed > 0 || total.passed == 0 {
		return errFailed
	}
	return nil
}

// stage is a step with the exit status that make saw and how long it took.
type stage struct{ name, status, seconds string }

func readStages(path string) ([]stage, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("no steps were run: %w", err)
	}
	defer file.Close()
	var stages []stage
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		f := strings.Fields(scanner.Text())
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: want 'name status seconds', this is %q", path, scanner.Text())
		}
		stages = append(stages, stage{name: f[0], status: f[1], seconds: f[2]})
	}
	return stages, scanner.Err()
}

// compare makes sure that no step counts as passed by recording nothing.
func (r *result) compare(s stage) {
	switch {
	case s.status != "0" && r.failed == 0:
		r.failed++
		r.failures = append(r.failures, failure{name: "make " + s.name + " ended with status " + s.status})
	case s.status == "0" && r.passed+r.failed+r.skipped == 0:
		r.failed++
		r.failures = append(r.failures, failure{name: "make " + s.name + " recorded no test"})
	}
}

func (r result) print(w io.Writer, s stage) {
	mark := green("ok  ")
	if r.failed > 0 {
		mark = red("FAIL")
	}
	fmt.Fprintf(w, "%s %-16s %5d passed %4d failed %4d skipped %5ss\n", mark, s.name, r.passed, r.failed, r.skipped, s.seconds)
	for _, skip := range r.skips {
		fmt.Fprintf(w, "       %s %s\n", yellow("skipped"), cut(skip, 160))
	}
}

// print shows how the words of a failing test begin and end: a panic says what it
// is first, an assertion that waited says so last.
func (f failure) print(w io.Writer) {
	const head, tail = 6, 10
	fmt.Fprintf(w, "%s %s\n", red("FAIL"), f.name)
	for i, line := range f.words {
		switch left := len(f.words) - i; {
		case i < head || left <= tail:
			fmt.Fprintf(w, "       %s\n", cut(line, 200))
		case i == head:
			fmt.Fprintf(w, "       … %d lines\n", left-tail)
		}
	}
}

// cut shortens a line to a number of characters.
func cut(line string, most int) string {
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return line
}

// readResult counts the tests of one file. A package that failed counts only
// when none of its tests did: it did not compile, or died between tests.
func readResult(path string) (result, error) {
	var r result
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer file.Close()
	failedTests := map[string]bool{} // packages in which a test failed
	printed := map[string]string{}   // package and test → what it printed
	err = eachEvent(file, func(e event) error {
		switch name := strings.TrimSpace(e.Package + " " + e.Test); {
		case e.Action == "output":
			printed[name] += e.Output
		case e.Action == "fail" && (e.Test != "" || !failedTests[e.Package]):
			failedTests[e.Package] = true
			r.failed++
			r.failures = append(r.failures, failure{name, words(printed[name])})
		case e.Action == "pass" && e.Test != "":
			r.passed++
		case e.Action == "skip" && e.Test != "":
			r.skipped++
			r.skips = append(r.skips, name+": "+e.Output)
		}
		return nil
	})
	return r, err
}
