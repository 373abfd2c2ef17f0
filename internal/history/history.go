// Package history is the shape of what tracecore keeps of incidents and runs: what the
// history extension stores, its API answers with, and commands and reports read. It also
// says how a processor hands over what is to be kept.
package history

import (
	"cmp"
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Schema names the shape of the answers; history.schema.json describes it. A change that
// breaks a reader takes the next number.
const Schema = "tracecore.history/1"

// Keeper keeps what a processor tells.
type Keeper interface {
	// Keep returns nil once the verdicts are committed: they outlive a kill of the process
	// from then on. The same verdict and revision twice is kept once. It may wait for a
	// disk, so nobody calls it where records pass.
	Keep(ctx context.Context, verdicts []verdict.Verdict) error
	// Ranks keeps which ranks of which runs began and ended, and how many steps runs made. What
	// was not committed is lost.
	Ranks(ctx context.Context, seen []Sighting) error
	// Ended returns runs that ended a while ago, with their summaries, of which nobody has
	// told: each caller gets others, until Told says how it went.
	Ended(ctx context.Context) ([]Run, error)
	// Told notes which summaries have left; those that have not are given out again.
	Told(ctx context.Context, runs []Run, left bool) error
	// Mutes are those in force, by the id of their incident.
	Mutes(ctx context.Context) (map[string]Mute, error)
	// Listen has GET /v1/status ask what feeds the patterns, until cancel is called.
	Listen(processor string, feeds func() []Feed) (cancel func())
}

// EvidenceKeeper is a Keeper that also keeps the records around the verdicts of an incident.
type EvidenceKeeper interface {
	// Recall returns what is kept of an incident, also by the id that it had before it
	// became part of another.
	Recall(ctx context.Context, incident string) (Recalled, error)
	// KeepEvidence replaces the evidence of an incident. Once it returns nil, that outlives a
	// kill of the process. Of an incident that is not kept nothing is.
	KeepEvidence(ctx context.Context, incident string, evidence []byte) error
}

// AgentKeeper is a Keeper that also notes which agents watch. It does not wait.
type AgentKeeper interface {
	// Hear notes a heartbeat of an agent, which may speak for its machine.
	Hear(beat heartbeat.Beat)
}

// Recalled is an incident as it is kept.
type Recalled struct {
	Incident string // its id now
	Verdicts []verdict.Verdict
	Evidence []byte // as Records of internal/incidentview keeps it; nil for none
	Room     int    // bytes that its evidence may have
}

// ErrNotFound is an incident that is not kept, or no longer.
var ErrNotFound = errors.New("there is no such incident")

// Feed is a piece of evidence that some pattern reads, and when such a record last came,
// whether it met the condition or not.
type Feed struct {
	Processor string     `json:"processor"`
	Pattern   string     `json:"pattern"`
	Evidence  string     `json:"evidence"`
	Reads     []string   `json:"reads"`          // events and metrics
	Last      *time.Time `json:"last,omitempty"` // event time; absent: never since the start
}

// Status answers GET /v1/status.
type Status struct {
	Head
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Open incidents; of those RootCauses have a cause that is known for certain, drills do
	// not count.
	Incidents  int `json:"incidents"`
	Open       int `json:"open"`
	RootCauses int `json:"root_causes"`
	// Problem is why the history does not work, in words; then the counts are not known.
	Problem  string `json:"problem,omitempty"`
	Bytes    int64  `json:"bytes"` // of the file that hold something
	MaxBytes int64  `json:"max_bytes"`
	// Ailing are the components that report an error.
	Ailing []Ailing `json:"ailing"`
	Feeds  []Feed   `json:"feeds"`
	// Works are the receivers that are at work here, by type: what they tell nothing of did not
	// happen here.
	Works []string `json:"works"`
	// Agents that were heard here, and those of them that need a look most, at most
	// MaxStatusAgents.
	Agents      heartbeat.Counts  `json:"agents"`
	WorstAgents []heartbeat.Agent `json:"worst_agents"`
}

// Others reports whether agents of other machines were heard.
func (s *Status) Others() bool {
	return s.Agents.All() > 1 || len(s.WorstAgents) == 1 && s.WorstAgents[0].Host != s.Host
}

// AgentsInWords say how many agents there are.
func (s *Status) AgentsInWords() string {
	words := []string{verdict.Number(s.Agents.Watching) + " watching"}
	for _, one := range []struct {
		n    int
		what string
	}{{s.Agents.Silent, "silent"}, {s.Agents.Gone, "stopped by order"}, {s.Agents.Evicted, "gave way to others"}} {
		if one.n > 0 {
			words = append(words, verdict.Number(one.n)+" "+one.what)
		}
	}
	return strings.Join(words, ", ")
}

// MaxStatusAgents bounds the agents of a status. GET /v1/agents has all.
const MaxStatusAgents = 16

// Agents answers GET /v1/agents: all that were heard, those first that need a look.
type Agents struct {
	Head
	Counts heartbeat.Counts  `json:"counts"`
	Agents []heartbeat.Agent `json:"agents"`
	More   bool              `json:"more"` // there are more than were asked for
}

// Ailing is a component that does not work, or not fully.
type Ailing struct {
	Component string    `json:"component"`
	Kind      string    `json:"kind"`
	Status    string    `json:"status"`
	Error     string    `json:"error"`
	Since     time.Time `json:"since"`
}

// Find returns the history extension of that id; nil for no id.
func Find(host component.Host, id *component.ID) (Keeper, error) {
	if id == nil {
		return nil, nil
	}
	found, ok := host.GetExtensions()[*id]
	if !ok {
		return nil, fmt.Errorf("history %q is not there: define it under extensions and name it in service::extensions", *id)
	}
	keeper, ok := found.(Keeper)
	if !ok {
		return nil, fmt.Errorf("history %q keeps no verdicts: name an extension of the type history", *id)
	}
	return keeper, nil
}

// Incident is one fault with what it led to.
type Incident struct {
	ID string `json:"incident_id"`
	// These are of its root cause, or of its first symptom while no cause is known.
	Role       verdict.Role       `json:"role"`
	Status     verdict.Status     `json:"status"`
	Severity   verdict.Severity   `json:"severity"`
	Confidence verdict.Confidence `json:"confidence"`
	Trust      verdict.Trust      `json:"trust"`
	Pattern    string             `json:"pattern"`
	Headline   string             `json:"headline"`
	Culprit    map[string]string  `json:"culprit"`
	Drill      bool               `json:"drill,omitempty"`
	Onset      time.Time          `json:"onset"`
	Resolved   *time.Time         `json:"resolved,omitempty"`

	Updated time.Time `json:"updated"` // event time of the newest evidence of all its verdicts
	Jobs    []string  `json:"jobs"`    // that its verdicts name, at most MaxNames
	Nodes   []string  `json:"nodes"`   // hosts and nodes that they name, at most MaxNames
	// Verdicts is how many there are, each counted once.
	Verdicts int `json:"verdicts_count"`

	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`
	Muted        *Mute            `json:"muted,omitempty"` // also where the mute has ended
}

// State is what one has to know first at a time: how bad, how certain, whether it is over.
func (i *Incident) State(now time.Time) string {
	words := []string{string(i.Severity)}
	if i.Confidence == verdict.Partial {
		words = append(words, "likely")
	}
	if i.Status == verdict.Resolved {
		words = []string{"cleared"}
	}
	if i.Drill {
		words = append([]string{"DRILL"}, words...)
	}
	if i.Role == verdict.Symptom {
		words = append(words, "no cause known")
	}
	if i.Acknowledged != nil {
		words = append(words, "acknowledged")
	}
	if i.Muted != nil && now.Before(i.Muted.Until) {
		words = append(words, "muted")
	}
	return strings.Join(words, ", ")
}

// Lasted is how long it went on, or goes on at a time.
func (i *Incident) Lasted(now time.Time) time.Duration {
	if i.Status == verdict.Resolved && i.Resolved != nil {
		now = *i.Resolved
	}
	return max(0, now.Sub(i.Onset))
}

// Mute keeps an incident from being told, but for its end to who was told of it before.
type Mute struct {
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`
	UID    uint32    `json:"uid"` // of the caller, as the kernel says
	Reason string    `json:"reason"`
}

// MaxMute is how long a mute lasts at most.
const MaxMute = 90 * 24 * time.Hour

// OneRun answers GET /v1/runs/{id}: a run with its incidents, the newest first.
type OneRun struct {
	Head
	Run       Run        `json:"run"`
	Incidents []Incident `json:"incidents"`
	More      bool       `json:"more"` // there are more than MaxOfARun
}

// MaxOfARun bounds the incidents of a run that are answered.
const MaxOfARun = 256

// Causes reports whether its root cause is known for certain. A drill has none.
func (i *Incident) Causes() bool {
	return i.Role == verdict.RootCause && i.Confidence == verdict.Full && !i.Drill
}

// WorstFirst puts the incident first that has to be looked at: open before over, no drill
// before a drill, a cause before a symptom, what is certain before what is likely, then the
// most severe, then the newest. So claims of a process, however many, hide nothing.
func WorstFirst(a, b *Incident) int {
	return cmp.Or(
		first(a.Status == verdict.Open, b.Status == verdict.Open), first(!a.Drill, !b.Drill),
		first(a.Role == verdict.RootCause, b.Role == verdict.RootCause),
		first(a.Confidence == verdict.Full, b.Confidence == verdict.Full), b.Severity.Compare(a.Severity), b.Onset.Compare(a.Onset), cmp.Compare(a.ID, b.ID))
}

// first puts a before b where it alone is so.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// MaxNames bounds the jobs and nodes of an incident that are listed.
const MaxNames = 64

// Acknowledgement says that a person has seen an incident.
type Acknowledgement struct {
	At   time.Time `json:"at"`
	UID  uint32    `json:"uid"` // of the caller, as the kernel says
	Note string    `json:"note,omitempty"`
}

// Revision is one statement of one verdict, as it was made.
type Revision struct {
	Kept    time.Time       `json:"kept"` // when it was stored
	Verdict verdict.Verdict `json:"verdict"`
}

// SortRevisions orders statements by when they were stored.
func SortRevisions(revisions []Revision) {
	slices.SortStableFunc(revisions, func(a, b Revision) int {
		return cmp.Or(a.Kept.Compare(b.Kept), cmp.Compare(a.Verdict.ID, b.Verdict.ID), cmp.Compare(a.Verdict.Revision, b.Verdict.Revision))
	})
}

// Sighting is the begin or the end of one rank of a run, or how many steps a run has made.
type Sighting struct {
	Run, Job, Domain string
	Trust            verdict.Trust
	Rank, World      int // World: how many ranks the job says it has, 0 when it does not
	Host             string
	Began            time.Time
	At               time.Time // of the record
	Ended            bool
	Failed           string // how it ended, where that is no success
	Unseen           bool   // nobody saw how it ended
	// Steps, where it is there, is all that is told: how many the run has made so far.
	Steps *Steps
}

// Steps are steps of training, as the code of the job tells them. They decide nothing.
type Steps struct {
	Count uint64    `json:"count"`                  // of the rank that told of most
	First time.Time `json:"first_began"`            // of that rank
	Last  time.Time `json:"last_began"`             // of that rank
	Each  float64   `json:"seconds_each,omitempty"` // from one begin to the next; absent where one alone was told
	Ranks int       `json:"ranks_count,omitempty"`  // that tell of theirs
}

// PerStep is how long a step takes, in words; "" where that is not known.
func (s *Steps) PerStep() string {
	if s == nil || s.Each <= 0 {
		return ""
	}
	switch each := time.Duration(s.Each * float64(time.Second)); {
	case each < time.Second:
		return strconv.FormatInt(each.Milliseconds(), 10) + " ms"
	case each < time.Minute:
		return strconv.FormatFloat(s.Each, 'f', 2, 64) + " s"
	default:
		return verdict.Lasting(each)
	}
}

// States of a run.
const (
	RunGoesOn    = "goes_on"   // ranks of it are not known to have ended
	RunSucceeded = "succeeded" // all ranks that were seen ended with exit code 0
	RunFailed    = "failed"    // all ended, one of them otherwise
	RunEnded     = "ended"     // all ended, and of one nobody saw how
	RunFollowed  = "followed"  // its job was started again before all were seen to end
)

// Run is one start of a job, as far as its ranks were seen from here.
type Run struct {
	ID      string        `json:"run_id"`
	Job     string        `json:"job"`
	Domain  string        `json:"job_domain,omitempty"` // whose job it is
	Trust   verdict.Trust `json:"trust"`
	Began   time.Time     `json:"began"` // its first rank
	Updated time.Time     `json:"updated"`
	Ended   *time.Time    `json:"ended,omitempty"` // its last rank
	// Followed is when its job was started again, where not all ranks were seen to end.
	Followed *time.Time `json:"followed,omitempty"`
	Outcome  string     `json:"outcome"`

	WorldSize  int      `json:"world_size,omitempty"` // as the job says
	Ranks      string   `json:"ranks"`                // that were seen, as ranges: "0-516,518-1023"
	RanksCount int      `json:"ranks_count"`
	EndedRanks string   `json:"ranks_ended,omitempty"`
	EndedCount int      `json:"ranks_ended_count"`
	Hosts      []string `json:"hosts"` // the first MaxNames that were seen
	First      *Death   `json:"first_failure,omitempty"`
	Unseen     int      `json:"ranks_ended_unseen,omitempty"` // of those that ended, nobody saw how
	Steps      *Steps   `json:"steps,omitempty"`              // on average, where its code tells of them
	Summary    *Summary `json:"summary,omitempty"`            // once it has ended, and was told
}

// Death is how the first rank of a run ended that did not succeed.
type Death struct {
	Rank int       `json:"rank"`
	Host string    `json:"host"`
	At   time.Time `json:"at"`
	How  string    `json:"how"`
}

// Jobs answers GET /v1/jobs: runs, the newest first.
type Jobs struct {
	Head
	Runs []Run `json:"runs"`
	More bool  `json:"more"`
}

// Head is what every answer begins with.
type Head struct {
	Schema string    `json:"schema"`
	Host   string    `json:"host"` // machine that answers
	At     time.Time `json:"at"`   // its clock
}

// Incidents answers GET /v1/incidents: newest onset first.
type Incidents struct {
	Head
	Incidents []Incident `json:"incidents"`
	More      bool       `json:"more"` // there are more than were asked for
}

// Whole answers GET /v1/incidents/{id}: an incident with all that is known of it.
type Whole struct {
	Head
	Incident Incident `json:"incident"`
	// Verdicts are the newest revision of each, root cause first, then by onset: the chain.
	// A symptom names its cause in root_cause_id.
	Verdicts []verdict.Verdict `json:"verdicts"`
	// Revisions are all that were kept, in the order in which they were stored; with
	// ?revisions=true.
	Revisions []Revision `json:"revisions,omitempty"`
	// Cut: verdicts or revisions are left out, the answer would be too large.
	Cut bool `json:"cut,omitempty"`
}

// Filter chooses incidents or runs.
type Filter struct {
	Since time.Time // nothing that was over, or last heard of, before
	Job   string
	Node  string // host or Kubernetes node
	Open  bool   // only what is open
	Limit int    // 0: DefaultLimit
}

// Limits of a list.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Failure answers what cannot be answered.
type Failure struct {
	Schema string `json:"schema"`
	Error  string `json:"error"`
}

// SchemaJSON is the JSON schema of all answers.
//
//go:embed history.schema.json
var SchemaJSON []byte

// ParseSince reads a time: a duration before now, as 90m, 12h or 7d, a date, or RFC 3339.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() >= 1970 && t.Year() < 2262 {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("since is %.40q: give a duration as 90m, 12h or 7d, or a time as 2026-12-01T08:00:00Z", text)
}
