package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

// testEvent is one event of `go test -json` (go doc test2json).
type testEvent struct {
	Action  string
	Package string
	Test    string  `json:",omitempty"`
	Output  string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"`
}

// result is what one binary did on one kernel.
type result struct {
	Package string
	Problem string // why it did not pass; "" when it passed
	Passed  int
	Failed  int
	Skipped int
	Seconds float64
	Kept    bool // told again of an earlier run
	Output  string
	Events  []testEvent
}

// collector turns the lines of a run into results. A binary that was given and
// never ended is a failure, whatever else happened.
type collector struct {
	kernel  Kernel
	given   []binary
	outputs map[string]*bytes.Buffer
	ends    map[string]guest.Line
	begun   time.Time          // of the binary that runs
	seconds map[string]float64 // how long each took
	unread  map[string]string  // package → a measurement that is none
	kept    map[string]bool    // packages that an earlier machine ran

	Measured []measurement
	Release  string
}

func newCollector(k Kernel, given []binary) *collector {
	c := &collector{kernel: k, given: given, outputs: map[string]*bytes.Buffer{}, ends: map[string]guest.Line{}, seconds: map[string]float64{}, unread: map[string]string{}, kept: map[string]bool{}}
	for _, b := range given {
		c.outputs[b.Name] = &bytes.Buffer{}
	}
	return c
}

// see takes one line; lines about packages that were not given are ignored.
func (c *collector) see(line guest.Line) {
	switch output, given := c.outputs[line.Package]; {
	case line.Kind == guest.Boot:
		*c = *newCollector(c.kernel, c.given) // what an earlier boot said counts no more
		c.Release = strings.TrimSpace(line.Text)
	case line.Kind == guest.Begin:
		c.begun = time.Now()
	case given && line.Kind == guest.Kept:
		c.Release, c.kept[line.Package] = strings.TrimSpace(line.Text), true
	case given && line.Kind == guest.Output:
		output.WriteString(line.Text)
	case given && line.Kind == guest.Measured:
		m, err := parseMeasurement(line.Text)
		if err != nil {
			c.unread[line.Package] = err.Error()
			return
		}
		c.Measured = append(c.Measured, m)
	case given && line.Kind == guest.End:
		c.ends[line.Package] = line
		if !c.kept[line.Package] {
			c.seconds[line.Package] = time.Since(c.begun).Seconds()
		}
	}
}

// results judges every binary that was given, in order. A run that broke is a
// result of its own, so that it counts even when each binary had ended.
func (c *collector) results(broken error) ([]result, error) {
	var all []result
	for _, b := range c.given {
		output := c.outputs[b.Name]
		events, err := toEvents(output.Bytes(), c.kernel.Name+"/"+b.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		r := result{Package: b.Name, Events: events, Output: output.String(), Seconds: c.seconds[b.Name], Kept: c.kept[b.Name]}
		if b.Err != nil {
			r.Problem, r.Output = "does not compile", b.Err.Error()
		} else {
			end, ended := c.ends[b.Name]
			r.judge(c.kernel, end, ended)
		}
		if r.Problem == "" {
			r.Problem = c.unread[b.Name]
		}
		all = append(all, r)
	}
	if broken != nil {
		all = append(all, result{Package: "machine", Problem: "broke", Output: broken.Error()})
	}
	return all, nil
}

// toEvents runs Go's own converter over the output of a test binary.
func toEvents(output []byte, pkg string) ([]testEvent, error) {
	command := exec.Command("go", "tool", "test2json", "-p", pkg)
	command.Stdin = bytes.NewReader(output)
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("test2json: %w", err)
	}
	var events []testEvent
	said := map[string]string{} // test → what it printed, for the reason of a skip
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var e testEvent
		if err := decoder.Decode(&e); err == io.EOF {
			return events, nil
		} else if err != nil {
			return nil, fmt.Errorf("read test2json: %w", err)
		}
		switch line := strings.TrimSpace(e.Output); {
		case e.Action == "skip":
			e.Output = strings.TrimSpace(said[e.Test])
		case e.Action == "output" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- "):
			said[e.Test] += " " + line
		}
		if e.Action == "output" || e.Test != "" {
			events = append(events, e)
		}
	}
}

// judge counts the tests and says what is wrong, the worst first.
func (r *result) judge(k Kernel, end guest.Line, ended bool) {
	var undeclared []string
	started := 0
	for _, e := range r.Events {
		switch {
		case e.Test == "":
		case e.Action == "run":
			started++
		case e.Action == "pass":
			r.Passed++
		case e.Action == "fail":
			r.Failed++
		case e.Action == "skip" && !k.allows(r.Package, e.Test):
			undeclared = append(undeclared, e.Test)
			r.Skipped++
		case e.Action == "skip":
			r.Skipped++
		}
	}
	switch {
	case !ended:
		r.Problem = "did not end: the machine died or was stopped first"
	case end.Error != "":
		r.Problem = end.Error
	case end.Code != 0:
		r.Problem = fmt.Sprintf("exit status %d", end.Code)
	case r.Failed > 0:
		r.Problem = "tests failed"
	case len(undeclared) > 0 && k.Name != hostName:
		r.Problem = "skipped without a skip line in kernels.txt: " + strings.Join(undeclared, ", ")
	case started > r.Passed+r.Failed+r.Skipped:
		r.Problem = "a test started and never ended"
	case started == 0:
		r.Problem = "ran no test"
	}
}

// finished returns the events with the closing one that the counts go by.
func (r result) finished(kernel string) []testEvent {
	name := kernel + "/" + r.Package
	if r.Problem == "" {
		return append(r.Events, testEvent{Action: "pass", Package: name, Elapsed: r.Seconds})
	}
	why := testEvent{Action: "output", Package: name, Output: r.Problem + "\n"}
	if len(r.Events) == 0 {
		why.Output += clean(r.Output)
	}
	return append(r.Events, why, testEvent{Action: "fail", Package: name, Elapsed: r.Seconds})
}
