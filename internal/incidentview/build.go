package incidentview

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Bounds of a view. What is left out is counted where it is left out.
const (
	mostLinks    = 64  // of the chain
	mostSeen     = 128 // things that were seen
	mostNotSeen  = 64
	mostNear     = 24
	mostLanes    = 8
	mostBars     = 32 // of one lane
	mostLevels   = 96 // of one lane
	mostWaits    = 6
	mostStacks   = 8 // groups of ranks
	mostFrames   = 64
	mostVerdicts = 64 // raw
	mostRaw      = 64 // records as they came
)

// Options of Build.
type Options struct {
	// Now is when the view is made.
	Now time.Time
	// Version of tracecore.
	Version string
	// Until is when a recording ends, zero where all goes on. What is decided then may be decided
	// by a time that was yet to come.
	Until time.Time
	// Records that stood beside the verdicts, nil for none.
	Records *Records
	// Before are incidents like it, nil where no history was asked.
	Before *Before
	// Feeds says whether a piece of evidence can be seen, nil where nobody knows.
	Feeds func(pattern, evidence string, sources []string) Feed
}

// Feed is what is known of what would tell of a piece of evidence.
type Feed struct {
	Kind  string    // CannotSee, NotThere or NotKnown
	Why   string    // in words
	Heard time.Time // when such a record last came, zero for never
}

// Build makes the view of one incident: all its verdicts, of several revisions of one the
// newest counts. It is empty for no verdicts.
func Build(verdicts []verdict.Verdict, o Options) View {
	incident := verdict.Merge(nil, verdicts)
	if len(incident) == 0 {
		return View{}
	}
	for i := range incident {
		incident[i] = verdict.Bounded(incident[i])
	}
	head := incident[0]
	status, ended := head.Incident()
	v := View{
		Schema: Schema, ID: head.IncidentID, Headline: capital(verdict.Sized(head.Headline)), Pattern: head.Pattern, Span: head.Span,
		Severity: head.Severity, Status: status, Role: head.Role, Confidence: head.Confidence, Trust: head.Trust, Drill: head.Drill,
		Where: verdict.Where(head.Culprit), Facts: verdict.Facts(head.Culprit), Culprit: head.Culprit,
		Since: head.Onset, Updated: newest(incident), Resolved: ended,
		Do: steps(head), Before: o.Before, Made: Made{At: o.Now.UTC(), By: o.Version},
	}
	hit := 0
	v.Job = job(incident)
	for _, one := range verdict.RanksByJob(incident) {
		if hit += len(one.Ranks); one.Job == v.Job && v.Ranks.Count == 0 {
			v.Ranks = RanksOf(one.Ranks)
		}
	}
	v.LedTo = chain(incident, o.Records)
	v.Seen, v.NotSeen = seen(incident), notSeen(incident, o.Feeds)
	v.Waits = waits(incident)
	v.Raw = rawVerdicts(incident)
	for i := range incident {
		v.Made.Verdicts = append(v.Made.Verdicts, incident[i].ID)
	}
	if over := len(v.Made.Verdicts) - mostVerdicts; over > 0 {
		v.Made.Verdicts = v.Made.Verdicts[:mostVerdicts]
		v.Made.Flaws = append(v.Made.Flaws, verdict.Number(over)+" verdicts of this incident are left out")
	}
	o.Records.addTo(&v, incident)
	v.Lanes = lanes(&v, incident, o.Records)
	v.Lost = lost(&v, hit, o.Until)
	return clean(v)
}

// capital begins a sentence as a sentence begins, where it begins with a plain word.
func capital(text string) string {
	word, _, _ := strings.Cut(text, " ")
	if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") != "" {
		return text // a name is written as it is
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func newest(incident []verdict.Verdict) time.Time {
	at := incident[0].Updated
	for i := range incident {
		if incident[i].Updated.After(at) {
			at = incident[i].Updated
		}
	}
	return at
}

func job(incident []verdict.Verdict) string {
	for i := range incident {
		if name := incident[i].Culprit["job"]; name != "" {
			return name
		}
	}
	return ""
}

// steps are those of a verdict, or its remedy as one.
func steps(v verdict.Verdict) []Step {
	if len(v.Steps) > 0 {
		return v.Steps
	}
	if v.Remediation == "" {
		return nil
	}
	return []Step{{Text: verdict.Sized(v.Remediation)}}
}

func chain(incident []verdict.Verdict, r *Records) []Link {
	var links []Link
	for _, v := range incident {
		kind := KindSymptom
		if v.Role == verdict.RootCause {
			kind = KindCause
		}
		links = append(links, Link{
			At: v.Onset, Kind: kind, Text: capital(verdict.Sized(v.Headline)), Pattern: v.Pattern, VerdictID: v.ID, Confidence: v.Confidence,
			Host: cmp.Or(v.Culprit["host"], v.Culprit["node"]), Cleared: v.Status == verdict.Resolved,
		})
	}
	links = links[:min(len(links), mostLinks)]
	for _, n := range r.nearest() {
		links = append(links, Link{At: n.At, Kind: KindNear, Text: n.Text, Why: n.Why, Host: n.Host})
	}
	slices.SortStableFunc(links, func(a, b Link) int { return a.At.Compare(b.At) })
	return links
}

func seen(incident []verdict.Verdict) []Seen {
	var list []Seen
	for _, v := range incident {
		for _, e := range v.Evidence {
			at, says := e.Time, e.Trust.String()
			if !e.Began.IsZero() {
				at = e.Began
			}
			if strings.HasPrefix(e.Source, "finding.") {
				says = SaysDerived
			}
			list = append(list, Seen{At: at, Last: e.Last, Count: e.Count, Text: verdict.Sized(e.Shows), Source: e.Source, Says: says, Pattern: v.Pattern})
		}
	}
	slices.SortStableFunc(list, func(a, b Seen) int { return a.At.Compare(b.At) })
	return list[:min(len(list), mostSeen)]
}

// notSeen lists what cannot be seen first: it bounds everything that is said.
func notSeen(incident []verdict.Verdict, feeds func(string, string, []string) Feed) []NotSeen {
	var list []NotSeen
	known := map[string]bool{}
	for _, v := range incident {
		missing := slices.Clone(v.Missing)
		for _, text := range v.NotObserved { // of an older tracecore, or lack of proof
			if !slices.ContainsFunc(missing, func(m verdict.Missing) bool { return m.Text == text }) {
				missing = append(missing, verdict.Missing{Text: text})
			}
		}
		for _, m := range missing {
			one := NotSeen{Kind: NotKnown, Text: m.Text, Sources: m.Sources, Pattern: v.Pattern}
			if feeds != nil && len(m.Sources) > 0 {
				feed := feeds(v.Pattern, m.Name, m.Sources)
				one.Kind, one.Why, one.Heard = feed.Kind, feed.Why, feed.Heard
			}
			if !known[one.Text] {
				known[one.Text] = true
				list = append(list, one)
			}
		}
	}
	order := map[string]int{CannotSee: 0, NotThere: 1, NotKnown: 2}
	slices.SortStableFunc(list, func(a, b NotSeen) int { return order[a.Kind] - order[b.Kind] })
	return list[:min(len(list), mostNotSeen)]
}

// waits are the edges that the verdicts tell of: ranks wait for a rank, a rank for a mount,
// a mount for its daemon. Each is named once. What a collective says of it comes before what
// connections say.
func waits(incident []verdict.Verdict) []Wait {
	var edges []Wait
	add := func(w Wait) {
		if w.From != "" && w.To != "" && w.From != w.To && len(edges) < mostWaits &&
			!slices.ContainsFunc(edges, func(o Wait) bool { return o.From == w.From && o.To == w.To }) {
			edges = append(edges, w)
		}
	}
	for _, pattern := range []string{"nccl_hang", ""} {
		for i := range incident {
			if (incident[i].Pattern == "nccl_hang") != (pattern != "") {
				continue
			}
			for _, w := range incident[i].Waits {
				if !slices.ContainsFunc(edges, func(o Wait) bool { return o.To == w.For && w.For != verdict.EachOther }) {
					add(waitOf(w))
				}
			}
		}
	}
	for _, v := range incident {
		mount := cmp.Or(v.Culprit["mount"], v.Culprit["device"])
		if v.Pattern != "fuse_stall" || mount == "" {
			continue
		}
		if rank := v.Culprit["rank"]; rank != "" {
			add(Wait{From: "rank " + rank, To: mount, Reason: cmp.Or(v.Culprit["opcode"], "page fault")})
		}
		if daemon := v.Culprit["daemon"]; daemon != "" {
			add(Wait{From: mount, To: daemon + ", pid " + v.Culprit["daemon_pid"], Reason: "served by", State: v.Culprit["daemon_state"]})
		}
	}
	return edges
}

// waitOf is a wait that a verdict tells of.
func waitOf(w verdict.Wait) Wait {
	one := Wait{From: Ranks{Count: w.Count, Ranges: w.Ranks}.Words(), To: w.For, Reason: w.What, Since: w.Since}
	if direct, err := verdict.ParseRanks(w.Direct); err == nil && len(direct) > 0 {
		one.Direct = RanksOf(direct).Words()
	}
	return one
}

// lost is how long ranks stood: to the end, or to what is known last, and not beyond the end of
// what was recorded.
func lost(v *View, ranks int, until time.Time) *Lost {
	end := v.Updated
	if v.Resolved != nil {
		end = *v.Resolved
	}
	if !until.IsZero() && end.After(until) {
		end = until
	}
	took := end.Sub(v.Since)
	if ranks == 0 || took < time.Second {
		return nil
	}
	return &Lost{Ranks: ranks, Seconds: took.Seconds(), RankHours: took.Hours() * float64(ranks)}
}

// rawVerdicts are the verdicts as they came.
func rawVerdicts(incident []verdict.Verdict) []Raw {
	var list []Raw
	for _, v := range incident[:min(len(incident), mostVerdicts)] {
		text, err := safetext.Marshal(v)
		if err != nil {
			continue // cannot be: strings, ints, and times from 1970 to 2262
		}
		note := strings.ReplaceAll(string(v.Role), "_", " ") + ", revision " + strconv.Itoa(v.Revision)
		list = append(list, Raw{Title: "verdict " + v.Pattern, Note: note, JSON: json.RawMessage(text)})
	}
	return list
}
