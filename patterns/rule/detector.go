package rule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// FindingPrefix begins the event names of findings. Only detectors make them: a
// record from outside that carries such a name is not read.
const FindingPrefix = "finding."

// Detector is an algorithm in Go behind a pattern file, for what conditions on
// single records cannot say. It watches records and makes findings; the file
// that names it turns findings into verdicts like any other evidence.
type Detector struct {
	Name    string
	Logs    []string // event names whose records it is shown
	Metrics []string // metric names likewise

	// Findings are the event names of what it finds, each with the events one of
	// which it cannot do without.
	Findings map[string][]string
	// Trust is the least trust of the records that it is shown. Those of each trust are
	// judged by themselves, and its findings are trusted as much.
	Trust verdict.Trust
	// Facts are those of Logs and Metrics of which it is shown the proven ones, and no others:
	// what was measured, beside what somebody claims. Findings are trusted as the claim.
	Facts []string
	// Ends are those of Logs that it is shown even later than the lateness allows: each says that something has ended,
	// and what, whatever came since. Nobody tells an end twice. Without it what has ended would stay open.
	Ends []string
	// Attributes are the attributes it reads.
	Attributes []string
	// Parameters are those that a file which names it has to define.
	Parameters map[string]ParameterType

	New func(Limits) Algorithm
}

// Limits are what an engine allows an algorithm.
type Limits struct {
	Lateness int64 // how much older than the newest a record may be, nanoseconds
	Values   Values
}

// Algorithm is the state of a detector in one engine. Like the engine it does no
// I/O and has no clock, no goroutine and no state outside: the same calls give
// the same findings. All times are unix nanoseconds of event time. It is shown
// records in order of arrival, none older than the lateness but its Ends; what it ends up
// finding must not depend on that order.
type Algorithm interface {
	// Observe takes in one record and reports whether it matters: records that do
	// are kept to rebuild the state.
	Observe(*Record) bool
	// Due is when Decide may next have something to say, 0 for never.
	Due() int64
	// Decide returns what is new or has changed at that time. It is called at the
	// end of a batch of records and when event time reaches Due.
	Decide(now int64) []Finding
	// Snapshot returns the state; equal states give equal bytes.
	Snapshot() ([]byte, error)
	// Restore replaces the state by that of a snapshot.
	Restore([]byte) error
	// Evicted counts what was forgotten because of a cap.
	Evicted() uint64
}

// Record is what an algorithm sees of a log record or data point, during the
// call only.
type Record struct {
	Name       string // event or metric name
	Time       int64
	Run        string // the start of its job that it is about, "" when not known
	Beside     string // an earlier start of that job whose ranks live beside it, as far as is known
	With       string // the same, once both are one job: ranks that began again alone, and those that went on with them
	Now        int64  // event time as it arrives: of the newest record, or of the host's clock
	Late       bool   // it happened while nobody looked, and was read later
	Resource   pcommon.Map
	Attributes pcommon.Map
	Number     float64 // of a data point
}

// Finding is what an algorithm concludes: a log record. In an engine only rules
// see it; a Host gives it to the next consumer.
type Finding struct {
	Event    string
	Body     string // one line for a person; rules do not read it
	Severity plog.SeverityNumber
	// ID tells findings of one event apart. One of the same ID replaces the
	// earlier one, in open verdicts too.
	ID string
	// Gone takes it back: what came later refutes it. A verdict that rests on it
	// is resolved, and opened again if the finding returns.
	Gone       bool
	Time       int64 // since when
	Last       int64 // until when, at least Time
	Late       bool  // some of what it rests on was read late
	Resource   map[string]any
	Attributes map[string]any
}

// Events returns the events of which e needs one: for a finding, what its
// detector needs for it.
func (r *Rule) Events(e *Evidence) []string {
	var events []string
	for _, name := range e.Logs {
		if r.Detect != nil && len(r.Detect.Findings[name]) > 0 {
			events = append(events, r.Detect.Findings[name]...)
		} else {
			events = append(events, name)
		}
	}
	slices.Sort(events)
	return slices.Compact(events)
}

// Wire gives rules the detectors they name, with their parameters. Check fails for a name
// that is none.
func Wire(rules []Rule, detectors []Detector) {
	for i := range rules {
		for _, d := range detectors {
			if rules[i].Detector == d.Name {
				start, values := d.New, rules[i].Parameters
				d.New = func(l Limits) Algorithm {
					l.Values = values
					return start(l)
				}
				rules[i].Detect = &d
			}
		}
	}
}

// checkDetector fails when r names a detector that does not exist, or reads a
// finding that its detector does not make.
func checkDetector(r *Rule) error {
	if r.Detector != "" && r.Detect == nil {
		return fmt.Errorf("%s: there is no detector %q: detectors are part of tracecore, a file of your own can use only those; leave it out", r.detectorAt.in(r.File), r.Detector)
	}
	if err := checkDetectorParameters(r); err != nil {
		return err
	}
	var known []string
	if r.Detect != nil {
		known = slices.Sorted(maps.Keys(r.Detect.Findings))
	}
	for _, e := range r.All() {
		for _, name := range e.Logs {
			if strings.HasPrefix(name, FindingPrefix) && !slices.Contains(known, name) {
				return fmt.Errorf("%s: evidence %s reads %s, which only a detector makes and this file names none that does: %s", e.at.in(r.File), e.Name, name, suggest(name, known))
			}
		}
	}
	return nil
}
