// Package incidentview is one incident as every view of it shows it: what broke, where,
// since when, what to do, what it led to, what was seen and what was not. The report, the
// history's HTTP API and the pages of the gateway show the same type. It is made of
// verdicts (Build) and, where there are some, of the records around them (Records).
//
// All text in a View is safe to show: lines of visible characters, bounded. JSON, HTML and
// Markdown are made of a View and of nothing else.
package incidentview

import (
	_ "embed" // the schema
	"encoding/json"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Schema names the form of a View in JSON; incident.schema.json describes it. It changes
// when a reader must change.
const Schema = "tracecore.incident/1"

// SchemaJSON is the JSON schema of a View.
//
//go:embed incident.schema.json
var SchemaJSON []byte

// View is one incident.
type View struct {
	Schema     string             `json:"schema"`
	ID         string             `json:"incident_id"`
	Headline   string             `json:"headline"`
	Severity   verdict.Severity   `json:"severity"`
	Status     verdict.Status     `json:"status"`
	Role       verdict.Role       `json:"role"` // symptom: the root cause is not among the verdicts that this was made of
	Confidence verdict.Confidence `json:"confidence"`
	Trust      verdict.Trust      `json:"trust"`
	Drill      bool               `json:"drill,omitempty"`
	Pattern    string             `json:"pattern"`

	Where   string            `json:"where"`           // in words, from the outside in
	Facts   string            `json:"facts,omitempty"` // what else the culprit is known to be
	Culprit map[string]string `json:"culprit"`
	Job     string            `json:"job,omitempty"`
	Ranks   Ranks             `json:"ranks"`          // hit by the whole incident
	Dead    *Ranks            `json:"dead,omitempty"` // of them died, as the records say
	Lost    *Lost             `json:"lost,omitempty"`

	Since    time.Time  `json:"since"`   // event time at which the cause began
	Updated  time.Time  `json:"updated"` // event time of the newest evidence
	Resolved *time.Time `json:"resolved,omitempty"`

	Span verdict.Span `json:"span,omitzero"` // where the cause falls in the traces of the job, as the job says

	Do      []Step    `json:"do"`
	LedTo   []Link    `json:"led_to"` // the root cause, what it led to, and what is near, by time
	Lanes   []Lane    `json:"lanes,omitempty"`
	Waits   []Wait    `json:"waits,omitempty"`
	Stacks  []Stack   `json:"stacks,omitempty"`
	Seen    []Seen    `json:"seen"`
	NotSeen []NotSeen `json:"not_seen,omitempty"`
	Near    []Near    `json:"near,omitempty"`
	Before  *Before   `json:"before,omitempty"` // absent where no history was asked
	Raw     []Raw     `json:"raw,omitempty"`
	Made    Made      `json:"made"`
}

// Ranks are ranks as ranges: at 16,384 ranks a list of them is 100 kB. In a View ranges of
// ranks that are scattered are the first of them.
type Ranks struct {
	Count  int    `json:"count"`
	Ranges string `json:"ranges,omitempty"`  // "0-516,518-1023"
	More   int    `json:"further,omitempty"` // ranks that are in none of the ranges
}

// Lost is how long how many ranks stood still, at most: from the beginning of the cause to
// its end, or to the last that is known.
type Lost struct {
	Ranks     int     `json:"ranks"`
	Seconds   float64 `json:"seconds"`
	RankHours float64 `json:"rank_hours"`
}

// LostOrNone is what ranks lost, nil where it would be shown as 0.0 rank hours.
func (v View) LostOrNone() *Lost {
	const least = 0.05
	if v.Lost == nil || v.Lost.RankHours < least {
		return nil
	}
	return v.Lost
}

// Step is one thing to do.
type Step = verdict.Step

// Kinds of a Link.
const (
	KindCause   = "cause"
	KindSymptom = "symptom"
	KindNear    = "near" // no rule joined it: it is shown and not counted
)

// Link is one part of the chain from cause to consequences.
type Link struct {
	At         time.Time          `json:"at"`
	Kind       string             `json:"kind"`
	Text       string             `json:"text"`
	Pattern    string             `json:"pattern,omitempty"`
	VerdictID  string             `json:"verdict_id,omitempty"`
	Confidence verdict.Confidence `json:"confidence,omitempty"`
	Host       string             `json:"host,omitempty"`
	Cleared    bool               `json:"cleared,omitempty"`
	Why        string             `json:"why,omitempty"` // of what is near: what it shares
}

// Styles of bars and points.
const (
	StyleCause = "cause"
	StyleWait  = "wait"
	StyleDead  = "dead"
	StyleNear  = "near"
)

// Lane is one row of the timeline: a resource, a rank, or ranks that are alike.
type Lane struct {
	Label  string  `json:"label"`
	Sub    string  `json:"sub,omitempty"`
	Bars   []Bar   `json:"bars,omitempty"`
	Points []Point `json:"points,omitempty"`
	Levels []Level `json:"levels,omitempty"` // of ranks that are alike: how many wait, how many died
}

// Bar is a state that lasts.
type Bar struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Open  bool      `json:"open,omitempty"` // it lasts on
	Text  string    `json:"text"`
	Style string    `json:"style"`
}

// Point is an event.
type Point struct {
	At    time.Time `json:"at"`
	Text  string    `json:"text"`
	Style string    `json:"style"`
}

// Level is how many ranks waited and how many had died from then on.
type Level struct {
	At      time.Time `json:"at"`
	Waiting int       `json:"waiting"`
	Dead    int       `json:"dead"`
}

// Wait says who waits for whom, and for what.
type Wait struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
	// Direct are those of From whose own connection shows it: the others wait for these.
	Direct string    `json:"direct,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	State  string    `json:"state,omitempty"` // of who is waited for, where nobody is behind it
}

// Stack is one stack and the ranks that stand in it.
type Stack struct {
	Ranks  Ranks     `json:"ranks"`
	At     time.Time `json:"at"` // when the first was read
	Wait   string    `json:"wait,omitempty"`
	Thread string    `json:"thread,omitempty"`
	Frames []Frame   `json:"frames,omitempty"`  // innermost first
	Unread string    `json:"unread,omitempty"`  // why there are no frames
	Shared int       `json:"shared,omitempty"`  // frames, from the outermost, that the next stack has too
	Here   int       `json:"here,omitempty"`    // 1 + index of the first frame of the program itself
	More   int       `json:"further,omitempty"` // frames that were left out
}

// Frame is one line of a stack.
type Frame struct {
	Kind     string `json:"kind,omitempty"` // kernel, native, python
	Function string `json:"function"`
	Place    string `json:"place,omitempty"` // file and line, or library
}

// SaysDerived stands in Seen.Says for what was computed from other records; else it is a
// trust.
const SaysDerived = "derived"

// Seen is one thing that was seen.
type Seen struct {
	At      time.Time `json:"at"`
	Last    time.Time `json:"last,omitzero"`
	Count   uint64    `json:"count"`
	Text    string    `json:"text"`
	Source  string    `json:"source"`
	Says    string    `json:"says"` // proven, claimed, foreign or derived
	Pattern string    `json:"pattern"`
}

// Kinds of a NotSeen.
const (
	CannotSee = "cannot_see" // nothing feeds it, so its absence says nothing
	NotThere  = "not_there"  // what would tell of it was at work, and told nothing of it
	NotKnown  = "not_known"  // not known which of the two
)

// NotSeen is one thing that a pattern looked for in vain.
type NotSeen struct {
	Kind    string    `json:"kind"`
	Text    string    `json:"text"`
	Sources []string  `json:"sources,omitempty"` // events and metrics that would tell of it
	Why     string    `json:"why,omitempty"`
	Heard   time.Time `json:"heard,omitzero"` // when such a record last came
	Pattern string    `json:"pattern"`
}

// Near is a record that no rule joined to the incident.
type Near struct {
	At    time.Time     `json:"at"`
	Event string        `json:"event"`
	Text  string        `json:"text"`
	Why   string        `json:"why"` // what it shares with the culprit
	Host  string        `json:"host,omitempty"`
	Trust verdict.Trust `json:"trust"`
}

// Before is whether there was such an incident before, as far as a history has kept it.
type Before struct {
	Kept   int       `json:"kept_count"`   // incidents that were looked at
	Others int       `json:"others_count"` // of these, of other kinds on the same node
	Alike  []Earlier `json:"alike"`        // the newest first
	More   int       `json:"further,omitempty"`
}

// Earlier is an incident that was before.
type Earlier struct {
	ID       string    `json:"incident_id"`
	Since    time.Time `json:"since"`
	Seconds  float64   `json:"seconds"` // it lasted, or lasts
	Open     bool      `json:"open,omitempty"`
	Headline string    `json:"headline"`
	Shares   string    `json:"shares"` // what both have in common
}

// Raw is evidence as it came: a verdict, or a record.
type Raw struct {
	Title string          `json:"title"`
	Note  string          `json:"note,omitempty"`
	JSON  json.RawMessage `json:"json"`
}

// Made is what a view was made of.
type Made struct {
	At       time.Time `json:"at"`                // when
	By       string    `json:"by"`                // version
	From     []string  `json:"from,omitempty"`    // files
	Hashes   []string  `json:"sha256,omitempty"`  // of the files
	Records  uint64    `json:"records,omitempty"` // read
	Verdicts []string  `json:"verdicts"`          // ids
	Flaws    []string  `json:"flaws,omitempty"`   // what was not read, evicted, or could not be judged
	Others   int       `json:"others,omitempty"`  // incidents in the same recording
	Again    string    `json:"again,omitempty"`   // the command that makes it again
}
