//go:build linux

// Package ladder climbs down a probe's list of hooks, best first, until one
// works, and keeps what was learned about those that did not.
package ladder

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Rung is one way to attach a probe.
type Rung[T any] struct {
	ID string // stable: "tp_btf/console"
	// Try loads and attaches the rung and makes it fire. It returns something to
	// use and whether it was seen to fire. When it returns an error it has
	// closed what it opened.
	Try func() (attached T, fired bool, err error)
}

// ErrSilent is returned, wrapped, by Try when the cause was made and no event came.
var ErrSilent = errors.New("attached, but the self-test made no event")

// NoRung is the error of a ladder on which nothing works.
type NoRung struct{ Report probe.Report }

// Error names each rung with its reason, and ends with what to do.
func (e *NoRung) Error() string {
	lines := make([]string, 0, len(e.Report.Attempts))
	hint := ""
	for _, a := range e.Report.Attempts {
		lines = append(lines, fmt.Sprintf("%s %s (%s)", a.Rung, a.Outcome, a.Reason))
		if a.Hint != "" {
			hint = a.Hint
		}
	}
	text := fmt.Sprintf("open %s: no hook works: %s", e.Report.Probe, strings.Join(lines, ", "))
	if hint != "" {
		text += ": " + hint
	}
	return text
}

// Lasting reports whether another attempt can only help once the kernel has changed:
// it lacks the hook of every rung.
func (e *NoRung) Lasting() bool {
	return !slices.ContainsFunc(e.Report.Attempts, func(a probe.Attempt) bool { return a.Outcome != probe.Unsupported })
}

// Climb tries the rungs in order and returns the first that works together with
// the report on all that were tried. With only set, the other rungs are left
// out: an unknown name is an error.
func Climb[T any](name, only string, rungs []Rung[T]) (T, probe.Report, error) {
	var none T
	report := probe.Report{Probe: name}
	known := false
	for _, rung := range rungs {
		if only != "" && rung.ID != only {
			continue
		}
		known = true
		attached, fired, err := rung.Try()
		if err != nil {
			report.Attempts = append(report.Attempts, Classify(rung.ID, err))
			continue
		}
		report.Attempts = append(report.Attempts, probe.Attempt{Rung: rung.ID, Outcome: probe.OK, Fired: fired})
		report.Rung = rung.ID
		return attached, report, nil
	}
	if !known {
		return none, report, fmt.Errorf("open %s: unknown rung %q: use one of %s", name, only, strings.Join(ids(rungs), ", "))
	}
	return none, report, &NoRung{Report: report}
}

func ids[T any](rungs []Rung[T]) []string {
	out := make([]string, 0, len(rungs))
	for _, r := range rungs {
		out = append(out, r.ID)
	}
	return out
}
