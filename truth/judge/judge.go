// Package judge says whether what tracecore told of a trial is true. It reads verdicts as
// any reader does, from their JSON, and shares no code with what it judges.
package judge

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Line is one verdict as it was printed, and when.
type Line struct {
	At         time.Time         `json:"-"`
	Old        bool              `json:"-"` // an update of a verdict that was first told before the trial
	ID         string            `json:"verdict_id"`
	Incident   string            `json:"incident_id"`
	Pattern    string            `json:"pattern"`
	Role       string            `json:"role"`
	Status     string            `json:"status"`
	GoesOn     string            `json:"goes_on"` // what it led to is not over
	Confidence string            `json:"confidence"`
	Severity   string            `json:"severity"`
	Headline   string            `json:"headline"`
	Culprit    map[string]string `json:"culprit"`
	Evidence   []struct {
		Shows string `json:"shows"`
	} `json:"evidence"`
}

// Read reads one line of `tracecore --set exporters.terminal.format=json`.
func Read(text []byte, at time.Time) (Line, error) {
	l := Line{At: at}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("read a verdict: %w", err)
	}
	return l, nil
}

// open reports whether the incident of a root cause is.
func (l *Line) open() bool { return l.Status == "open" || l.GoesOn != "" }

// accuses reports whether the line is a statement that wakes somebody: the root
// cause of an open incident. Information accuses nobody.
func (l *Line) accuses() bool {
	return l.Role == "root_cause" && l.open() && l.Severity != "info"
}

// says reports whether headline or evidence match.
func (l *Line) says(want *regexp.Regexp) bool {
	if want == nil || want.MatchString(l.Headline) {
		return true
	}
	for _, e := range l.Evidence {
		if want.MatchString(e.Shows) {
			return true
		}
	}
	return false
}

// Answer is one right statement.
type Answer struct {
	Pattern string
	Culprit map[string]string // each of these is what the verdict names
	Says    *regexp.Regexp    // the cause, in the headline or in the evidence; nil for no more than the pattern
	At      *regexp.Regexp    // where in the code the culprit is, there too; nil where nobody knows
}

func (a *Answer) names(l *Line) bool {
	if a.Pattern != l.Pattern {
		return false
	}
	for field, want := range a.Culprit {
		if l.Culprit[field] != want {
			return false
		}
	}
	return true
}

// Truth is what was done to a job in a trial.
type Truth struct {
	Began  time.Time
	Healed time.Time // zero when nothing heals it
	Away   []Span    // no agent ran, or one started: nothing could be told
	Right  []Answer  // none for a healthy trial
	Also   []Answer  // neither right nor wrong: true statements beside the point
}

// Span is a time between two.
type Span struct{ From, To time.Time }

// after is how long it took to tell something at that time. The time in which no agent could does not count.
func (t *Truth) after(at time.Time) time.Duration {
	took := at.Sub(t.Began)
	for _, s := range t.Away {
		from, to := s.From, s.To
		if from.Before(t.Began) {
			from = t.Began
		}
		if to.After(at) {
			to = at
		}
		took -= max(0, to.Sub(from))
	}
	return took
}

// Has reports whether a line is about the trial: the pattern and the culprit of an answer.
func (t *Truth) Has(l *Line) bool {
	of := func(a Answer) bool { return a.names(l) }
	return slices.ContainsFunc(t.Right, of) || slices.ContainsFunc(t.Also, of)
}

// Outcome is the score of one trial.
type Outcome struct {
	Culprit  bool          // who was right
	Cause    bool          // and why
	Placed   bool          // there is a line of code to be told
	Line     bool          // and it was, beside culprit and cause
	First    time.Duration // from the fault to the first statement that was right in both
	Wrong    []Line        // statements that accuse somebody else, the first of each
	Doubled  int           // right statements in more than one incident
	Resolved bool          // the right statement was told to be over, and not opened again
	Resolve  time.Duration // from the healing to that
	Told     []Line        // statements that accuse somebody, in the order they came
	Beside   []Line        // the first of each other verdict, for the reader of a miss
}

// Judge compares the lines of one trial, in the order they came, with the truth. An update
// of an older verdict can be right: a crash loop is one verdict. It is wrong about nothing
// new.
func Judge(truth Truth, lines []Line) Outcome {
	var o Outcome
	incidents, wrong, beside := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var right []string // ids
	o.Placed = slices.ContainsFunc(truth.Right, func(a Answer) bool { return a.At != nil })
	for i := range lines {
		l := &lines[i]
		if slices.Contains(right, l.ID) && !l.open() && !truth.Healed.IsZero() && !o.Resolved {
			o.Resolved, o.Resolve = true, max(0, l.At.Sub(truth.Healed))
		}
		if !l.accuses() {
			if !l.Old && !beside[l.ID] {
				beside[l.ID] = true
				o.Beside = append(o.Beside, *l)
			}
			continue
		}
		o.Told = append(o.Told, *l)
		answer := slices.IndexFunc(truth.Right, func(a Answer) bool { return a.names(l) })
		switch {
		case answer >= 0:
			o.Culprit, o.Resolved, o.Resolve = true, false, 0 // what is opened again is not over
			if !l.Old {
				incidents[l.Incident] = true
			}
			if !slices.Contains(right, l.ID) {
				right = append(right, l.ID)
			}
			if !o.Cause && slices.ContainsFunc(truth.Right, func(a Answer) bool { return a.names(l) && l.says(a.Says) }) {
				o.Cause, o.First = true, truth.after(l.At)
			}
			o.Line = o.Line || slices.ContainsFunc(truth.Right, func(a Answer) bool { return a.At != nil && a.names(l) && l.says(a.Says) && l.says(a.At) })
		case slices.ContainsFunc(truth.Also, func(a Answer) bool { return a.names(l) }):
		case !l.Old && !wrong[key(l)]:
			wrong[key(l)] = true
			o.Wrong = append(o.Wrong, *l)
		}
	}
	o.Doubled = max(0, len(incidents)-1)
	return o
}

// key tells statements apart: the same verdict that names another culprit is another.
func key(l *Line) string { return fmt.Sprint(l.ID, l.Culprit) }
