package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// printer shows progress and results to a person and records them for the
// summary; what belongs together stays together while machines run in parallel.
type printer struct {
	lock    sync.Mutex // held while writing to w or the record
	w       io.Writer
	verbose bool
	colour  bool
}

func newPrinter(w io.Writer, verbose bool) *printer {
	return &printer{w: w, verbose: verbose, colour: os.Getenv("NO_COLOR") == ""}
}

func (p *printer) step(format string, args ...any) {
	p.lock.Lock()
	defer p.lock.Unlock()
	fmt.Fprintf(p.w, "%s\n", p.paint("36", "== "+fmt.Sprintf(format, args...)))
}

func (p *printer) warn(kernel string, err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	fmt.Fprintf(p.w, "%s %s: %v\n", p.paint("33", "WARN"), kernel, err)
}

func (p *printer) paint(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// kernel prints one row's results and returns how many did not pass.
func (p *printer) kernel(k Kernel, release string, results []result, took time.Duration) int {
	p.lock.Lock()
	defer p.lock.Unlock()
	passed := 0
	for _, r := range results {
		if r.Problem == "" {
			passed++
			p.passed(k, r)
		} else {
			p.failed(k, r)
		}
	}
	colour := "32"
	if passed < len(results) {
		colour = "31"
	}
	fmt.Fprintln(p.w, p.paint(colour, fmt.Sprintf("kernel %s (%s): %d of %d passed in %s", k.Name, release, passed, len(results), took.Round(time.Second))))
	return len(results) - passed
}

func (p *printer) passed(k Kernel, r result) {
	took := fmt.Sprintf("%6.1fs", r.Seconds)
	if r.Kept {
		took = "(cached)"
	}
	fmt.Fprintf(p.w, "%s   %-14s %-32s %3d passed %2d skipped %s\n", p.paint("32", "ok"), k.Name, r.Package, r.Passed, r.Skipped, took)
	if p.verbose {
		fmt.Fprint(p.w, clean(r.Output))
	}
}

func (p *printer) failed(k Kernel, r result) {
	text := r.Output
	if len(r.Events) > 0 && !p.verbose {
		text = withoutPasses(r.Events)
	}
	fmt.Fprint(p.w, clean(text))
	fmt.Fprintf(p.w, "%s %-14s %-32s %s\n", p.paint("31", "FAIL"), k.Name, r.Package, r.Problem)
}

// withoutPasses is the output with all that belongs to tests that passed left out.
func withoutPasses(events []testEvent) string {
	passed := map[string]bool{}
	for _, e := range events {
		passed[e.Test] = passed[e.Test] || e.Test != "" && e.Action == "pass"
	}
	var out strings.Builder
	for _, e := range events {
		if e.Action == "output" && !passed[e.Test] {
			out.WriteString(e.Output)
		}
	}
	return out.String()
}

// appendJSON adds results in the form of go test -json.
func (p *printer) appendJSON(name, kernel string, results []result) error {
	if name == "" {
		return nil
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	for _, r := range results {
		for _, e := range r.finished(kernel) {
			if err := encoder.Encode(e); err != nil {
				return errors.Join(err, file.Close())
			}
		}
	}
	return file.Close()
}

// clean takes out what -test.v=test2json adds for its reader.
func clean(output string) string {
	output = strings.NewReplacer("\x16=== NAME  \n", "", "\x16", "").Replace(output)
	if output != "" && !strings.HasSuffix(output, "\n") {
		output += "\n"
	}
	return output
}
