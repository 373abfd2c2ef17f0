// Package verdict is what a pattern concludes: the shape, its log record, its
// JSON schema and its plain words for a terminal.
package verdict

import "time"

// EventName is the event name of a verdict's log record.
const EventName = "pattern.verdict"

// Confidence of a verdict.
type Confidence string

// Full: all evidence the pattern asks for was seen. Partial: enough to name the
// fault, with the missing evidence listed in NotObserved.
const (
	Full    Confidence = "full"
	Partial Confidence = "partial"
)

// Role of a verdict in its incident.
type Role string

// Each incident has one root cause; the others are its symptoms.
const (
	RootCause Role = "root_cause"
	Symptom   Role = "symptom"
)

// Status of a verdict.
type Status string

// Open until the fault clears.
const (
	Open     Status = "open"
	Resolved Status = "resolved"
)

// Severity follows the remedy, not the noise.
type Severity string

// The severities, with the OTLP severity number each maps to: info 9, warning
// 13, error 17, critical 21.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Error    Severity = "error"
	Critical Severity = "critical"
)

// Severities returns all of them, the mildest first.
func Severities() []Severity { return []Severity{Info, Warning, Error, Critical} }

// Pages reports whether a verdict is worth waking somebody: it is open, or what it led to is, which is as severe;
// it is the root cause, certain, no drill, and at least so severe.
func (v *Verdict) Pages(least Severity) bool {
	lasts := v.Status == Open || v.GoesOn.number() >= max(least.number(), Info.number())
	return lasts && v.Role == RootCause && v.Confidence == Full && !v.Drill && v.Severity.number() >= least.number()
}

// Incident is the status of the incident of which v is the root cause, and when that ended: it is open as long as
// what v led to goes on.
func (v *Verdict) Incident() (Status, *time.Time) {
	switch {
	case v.Status == Open || v.GoesOn != "":
		return Open, nil
	case v.Over != nil:
		return v.Status, v.Over
	}
	return v.Status, v.Resolved
}

// Verdict is one conclusion of one pattern about one fault.
type Verdict struct {
	ID         string     `json:"verdict_id"`  // deterministic: pattern, key, onset
	IncidentID string     `json:"incident_id"` // equal for all verdicts of one incident
	PatternID  int        `json:"pattern_id"`
	Pattern    string     `json:"pattern"`
	Role       Role       `json:"role"`
	RootCause  string     `json:"root_cause_id,omitempty"` // verdict id of the root cause, for a symptom
	Status     Status     `json:"status"`
	Confidence Confidence `json:"confidence"`
	// Trust is the weakest trust of the evidence that the confidence rests on.
	Trust    Trust    `json:"trust"`
	Severity Severity `json:"severity"`
	Revision int      `json:"revision"` // 1 when first emitted, +1 with each update

	Onset    time.Time  `json:"onset"`   // when what the earliest evidence tells of began
	Updated  time.Time  `json:"updated"` // event time of the newest evidence
	Resolved *time.Time `json:"resolved,omitempty"`
	// GoesOn is how bad the worst is that a resolved verdict led to, which is certain and not over: a rank that
	// died of it, a job that stands still. Empty where nothing is, and for information, such as that somebody ended the job.
	GoesOn Severity `json:"goes_on,omitempty"`
	// Over is when the last of what a resolved verdict led to ended, as far as is known. Nil while something goes
	// on, and where all of it had ended by Resolved.
	Over *time.Time `json:"over,omitempty"`

	Headline    string `json:"headline"`
	Remediation string `json:"remediation"`
	Steps       []Step `json:"steps,omitempty"` // the same, step by step, with commands

	// Culprit holds what is named: host, node, gpu, pid, process, rank, job,
	// pod (its uid), namespace, pod_name, workload, container, cgroup, mount,
	// peer ... (keys as in the rule).
	Culprit     map[string]string `json:"culprit"`
	Boot        string            `json:"boot,omitempty"`               // boot id of the host or node that is named, when its newest evidence was seen
	Run         string            `json:"run_id,omitempty"`             // the start of the job that is named, by the first of its ranks that was seen
	BlastRadius Ranks             `json:"blast_radius_ranks,omitempty"` // ranks known to be hit, sorted
	Waits       []Wait            `json:"waits,omitempty"`              // who waits for whom, where connections or calls show it
	Late        bool              `json:"late,omitempty"`               // some of its evidence was read late: when it happened nobody looked
	Drill       bool              `json:"drill,omitempty"`              // all evidence is of a drill: nothing is to be drained or paged
	Stands      bool              `json:"stands,omitempty"`             // while it lasts, the ranks of its job make no progress

	// Span is where it falls in the traces of the job: the step of the rank that is named,
	// where a step is known, else the span of the first evidence that has one.
	Span      Span       `json:"span,omitzero"`
	RankSpans []RankSpan `json:"rank_spans,omitempty"` // the steps that other ranks hit were in

	Evidence    []Evidence `json:"evidence"`
	NotObserved []string   `json:"not_observed,omitempty"`
	Missing     []Missing  `json:"missing,omitempty"` // of NotObserved what names its source
}

// Effects of a command: it only reads, or it changes something on its target.
const (
	Looks   = "looks"
	Changes = "changes"
)

// Step is one thing to do.
type Step struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"` // for a shell; what came from outside is quoted
	Effect  string `json:"effect,omitempty"`  // of the command: looks or changes
	Target  string `json:"target,omitempty"`  // where the command is run
}

// Missing is a piece of evidence that was looked for and not seen.
type Missing struct {
	Name    string   `json:"name"`              // its name in the rule
	Text    string   `json:"text"`              // as in NotObserved
	Sources []string `json:"sources,omitempty"` // events and metrics that would tell of it
}

// Evidence is one thing that was seen.
type Evidence struct {
	Name   string    `json:"name"` // its name in the rule
	Time   time.Time `json:"time"` // of its first occurrence
	Last   time.Time `json:"last,omitzero"`
	Began  time.Time `json:"began,omitzero"` // what it tells of, where that began before it was seen
	Count  uint64    `json:"count"`
	Late   bool      `json:"late,omitempty"`  // when it happened nobody looked: it was read at the next start
	Source string    `json:"source"`          // event or metric name of the record
	Shows  string    `json:"shows"`           // in plain words
	Trust  Trust     `json:"trust"`           // of its records; with less than the verdict's it is a detail that decides nothing
	Spans  []Span    `json:"spans,omitempty"` // in which its records were written, the first of them
}
