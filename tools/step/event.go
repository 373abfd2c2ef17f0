package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string  `json:",omitempty"`
	ImportPath  string  `json:",omitempty"` // instead of Package while building
	Test        string  `json:",omitempty"`
	Output      string  `json:",omitempty"`
	Elapsed     float64 `json:",omitempty"`
	FailedBuild string  `json:",omitempty"`
}

func (e event) write(w io.Writer) error { return json.NewEncoder(w).Encode(e) }

// isVerdict tells the end of a test or package from what happens on the way.
func (e event) isVerdict() bool {
	return e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
}

// show prints a line per package, and the output of what fails as soon as it
// has failed. It copies verdicts, skip reasons and what failing tests printed to record.
func show(w io.Writer, stream io.Reader, record io.Writer) (failed int, err error) {
	outputs := map[string]*strings.Builder{} // package and test → what it printed
	tests := map[string]int{}                // package → tests that ended
	err = eachEvent(stream, func(e event) error {
		key := e.Package + e.ImportPath + " " + e.Test
		if e.Action == "output" || e.Action == "build-output" {
			if outputs[key] == nil {
				outputs[key] = &strings.Builder{}
			}
			outputs[key].WriteString(e.Output)
		}
		if !e.isVerdict() {
			return nil
		}
		if e.Action == "fail" {
			failed++
			if e.FailedBuild != "" {
				outputs[key] = outputs[e.FailedBuild+" "]
			}
			fmt.Fprint(w, textOf(outputs[key]))
			if err := (event{Action: "output", Package: e.Package, Test: e.Test, Output: textOf(outputs[key])}).write(record); err != nil {
				return err
			}
		}
		if e.Test == "" {
			packageLine(w, e, tests[e.Package])
			delete(tests, e.Package)
		} else {
			tests[e.Package]++
			if e.Action == "skip" {
				e.Output = strings.Join(words(textOf(outputs[key])), " ")
			}
		}
		delete(outputs, key)
		return e.write(record)
	})
	return failed, err
}

func textOf(output *strings.Builder) string {
	if output == nil {
		return ""
	}
	return output.String()
}

// words are the lines of a test's output that the test itself wrote.
func words(output string) []string {
	var kept []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(strings.ReplaceAll(line, "\x16", "")) // of -test.v=test2json
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			kept = append(kept, line)
		}
	}
	return kept
}

func packageLine(w io.Writer, e event, tests int) {
	switch {
	case e.Action == "fail":
		fmt.Fprintf(w, "%s %s\n", red("FAIL"), e.Package)
	case tests > 0:
		fmt.Fprintf(w, "%s %-70s %4d tests %6.1fs\n", green("ok  "), e.Package, tests, e.Elapsed)
	}
}

// eachEvent reads events; a line that is none is printed, for it is an error of
// the go command itself.
func eachEvent(r io.Reader, do func(event) error) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			fmt.Fprintln(os.Stderr, scanner.Text())
			continue
		}
		if err := do(e); err != nil {
			return err
		}
	}
	return scanner.Err()
}

func paint(code, text string) string {
	if os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func red(text string) string    { return paint("31", text) }
func green(text string) string  { return paint("32", text) }
func yellow(text string) string { return paint("33", text) }
func cyan(text string) string   { return paint("36", text) }
