package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Summary is what a run came to, for the ranks of it that were seen. What is not known is
// absent.
type Summary struct {
	Wall   *float64 `json:"wall_seconds,omitempty"`   // from the begin of its first rank to the end of its last; absent where an end was not seen
	Moving *float64 `json:"moving_seconds,omitempty"` // wall less standing
	// Standing is how long its ranks made no progress, as verdicts of patterns that say so
	// tell; what overlaps counts once.
	Standing  float64 `json:"standing_seconds"`
	RankHours float64 `json:"rank_hours_lost"` // standing × the ranks that were seen
	Causes    []Cause `json:"causes"`          // of the standing, the longest first
	Incidents int     `json:"incidents_count"` // of the run; drills do not count
	Slowest   *int    `json:"slowest_rank,omitempty"`
}

// Cause is how long a run stood for one cause.
type Cause struct {
	Pattern string  `json:"pattern"` // of the root cause where that is certain, else of what told that it stands
	Seconds float64 `json:"seconds"`
}

// MostCauses bounds the causes of a summary.
const MostCauses = 16

// SummaryEvent is the event name of the log record of a run that ended.
const SummaryEvent = "job.summary"

// Attributes of that record. AttrSummaryJSON holds the whole run as history.schema.json
// describes it; the others repeat what one filters and alerts on.
const (
	AttrSummaryJSON      = "job.summary.json"
	attrSummaryOutcome   = "job.summary.outcome"
	attrSummaryWall      = "job.summary.wall_seconds"
	attrSummaryMoving    = "job.summary.moving_seconds"
	attrSummaryStanding  = "job.summary.standing_seconds"
	attrSummaryCause     = "job.summary.cause_seconds." // + pattern
	attrSummaryRankHours = "job.summary.rank_hours_lost"
	attrSummaryIncidents = "job.summary.incidents"
	attrSummarySlowest   = "job.summary.slowest_rank"
	attrSummaryRanks     = "job.summary.ranks"
	attrSummaryCount     = "job.summary.ranks_count"
	attrSummaryFirst     = "job.summary.first_failed_rank"
	attrSummarySteps     = "job.summary.steps"
	attrSummaryStep      = "job.summary.step_seconds"
)

// ErrNotSummary means that a record is none of a run that ended.
var ErrNotSummary = errors.New("not a " + SummaryEvent + " record")

// ToRecord writes a run that has a summary into lr.
func ToRecord(run *Run, lr plog.LogRecord) {
	s := run.Summary
	lr.SetEventName(SummaryEvent)
	lr.SetTimestamp(pcommon.NewTimestampFromTime(run.Until()))
	lr.SetSeverityNumber(plog.SeverityNumberInfo)
	lr.SetSeverityText("info")
	lr.Body().SetStr(Words(run))
	a := lr.Attributes()
	a.Clear()
	a.PutStr(rule.AttributeJob, run.Job)
	a.PutStr(rule.AttributeRun, run.ID)
	if run.Domain != "" {
		a.PutStr(rule.AttributeJobDomain, run.Domain)
	}
	a.PutStr("tracecore.trust", run.Trust.String())
	if run.WorldSize > 0 {
		a.PutInt("gen_ai.training.world_size", int64(run.WorldSize))
	}
	a.PutStr(attrSummaryOutcome, run.Outcome)
	for name, seconds := range map[string]*float64{attrSummaryWall: s.Wall, attrSummaryMoving: s.Moving} {
		if seconds != nil {
			a.PutDouble(name, *seconds)
		}
	}
	a.PutDouble(attrSummaryStanding, s.Standing)
	a.PutDouble(attrSummaryRankHours, s.RankHours)
	for _, c := range s.Causes {
		a.PutDouble(attrSummaryCause+c.Pattern, c.Seconds)
	}
	a.PutInt(attrSummaryIncidents, int64(s.Incidents))
	if s.Slowest != nil {
		a.PutInt(attrSummarySlowest, int64(*s.Slowest))
	}
	if run.First != nil {
		a.PutInt(attrSummaryFirst, int64(run.First.Rank))
	}
	if run.Steps != nil {
		a.PutInt(attrSummarySteps, int64(min(run.Steps.Count, math.MaxInt64))) //nolint:gosec // it fits
		if run.Steps.Each > 0 {
			a.PutDouble(attrSummaryStep, run.Steps.Each)
		}
	}
	brief := *run
	seen, _, more, _ := verdict.Cut(run.Ranks) // the history wrote them
	brief.Ranks = seen
	brief.EndedRanks, _, _, _ = verdict.Cut(run.EndedRanks)
	a.PutStr(attrSummaryRanks, verdict.Brief(seen, more))
	a.PutInt(attrSummaryCount, int64(run.RanksCount))
	text, _ := safetext.Marshal(brief) // cannot fail: strings, numbers, and times from 1970 to 2262
	a.PutStr(AttrSummaryJSON, string(text))
}

// FromRecord reads the run out of a record, which may come from anywhere.
func FromRecord(lr plog.LogRecord) (Run, error) {
	if lr.EventName() != SummaryEvent {
		return Run{}, ErrNotSummary
	}
	value, ok := lr.Attributes().Get(AttrSummaryJSON)
	if !ok || value.Type() != pcommon.ValueTypeStr || len(value.Str()) > verdict.MaxJSONBytes {
		return Run{}, fmt.Errorf("%s record without the string attribute %s", SummaryEvent, AttrSummaryJSON)
	}
	var run Run
	if err := json.Unmarshal([]byte(value.Str()), &run); err != nil {
		return Run{}, fmt.Errorf("%s is not the JSON of a run: %w", AttrSummaryJSON, err)
	}
	if run.Summary == nil || run.ID == "" || run.Job == "" {
		return Run{}, fmt.Errorf("%s is no run with a summary", AttrSummaryJSON)
	}
	return run, nil
}

// Until is when a run ended, as far as that is known.
func (r *Run) Until() time.Time {
	switch {
	case r.Ended != nil && r.EndedCount >= r.RanksCount:
		return *r.Ended
	case r.Followed != nil:
		return *r.Followed
	}
	return r.Updated
}

// Words are a run that ended in one line.
func Words(run *Run) string {
	s := run.Summary
	var b strings.Builder
	fmt.Fprintf(&b, "Job %s ", safetext.Line(run.Job))
	switch run.Outcome {
	case RunSucceeded:
		b.WriteString("succeeded")
	case RunFailed:
		b.WriteString("failed")
	case RunEnded:
		b.WriteString("ended, nobody saw how,")
	default:
		b.WriteString("was started again")
	}
	if s.Wall != nil {
		fmt.Fprintf(&b, " after %s", lastingSeconds(*s.Wall))
	}
	if s.Standing > 0 {
		if s.Moving != nil {
			fmt.Fprintf(&b, ": it moved for %s and stood for %s", lastingSeconds(*s.Moving), lastingSeconds(s.Standing))
		} else {
			fmt.Fprintf(&b, ": it stood for %s", lastingSeconds(s.Standing))
		}
		var causes []string
		for _, c := range s.Causes[:min(len(s.Causes), 3)] {
			causes = append(causes, strings.ReplaceAll(safetext.Line(c.Pattern), "_", " ")+" "+lastingSeconds(c.Seconds))
		}
		fmt.Fprintf(&b, " (%s), %s rank hours lost", strings.Join(causes, ", "), strconv.FormatFloat(s.RankHours, 'f', 1, 64))
	} else {
		b.WriteString("; no stall was seen")
	}
	if each := run.Steps.PerStep(); each != "" {
		fmt.Fprintf(&b, "; %d steps, one in %s", run.Steps.Count, each)
	}
	switch s.Incidents {
	case 0:
	case 1:
		b.WriteString("; 1 incident")
	default:
		fmt.Fprintf(&b, "; %d incidents", s.Incidents)
	}
	if s.Slowest != nil {
		fmt.Fprintf(&b, "; slowest rank %d", *s.Slowest)
	}
	if run.First != nil {
		fmt.Fprintf(&b, "; rank %d on %s ended first, with %s", run.First.Rank, safetext.Line(run.First.Host), safetext.Line(run.First.How))
	}
	fmt.Fprintf(&b, ". Seen: %s", seenRanks(run))
	return b.String()
}

// seenRanks says which ranks the summary is about.
func seenRanks(run *Run) string {
	text := "ranks " + strings.ReplaceAll(run.Ranks, ",", ", ")
	switch {
	case run.RanksCount == 1:
		text = "rank " + run.Ranks
	case strings.Count(run.Ranks, ",") >= 3:
		text = verdict.Number(run.RanksCount) + " ranks"
	}
	if run.WorldSize > run.RanksCount {
		text += " of " + verdict.Number(run.WorldSize)
	}
	switch len(run.Hosts) {
	case 0:
	case 1:
		text += " on " + safetext.Line(run.Hosts[0])
	default:
		text += " on " + verdict.Number(len(run.Hosts)) + " hosts"
	}
	return safetext.Line(text)
}

func lastingSeconds(s float64) string {
	return verdict.Lasting(time.Duration(s * float64(time.Second)))
}

// Stood is an interval in which a run made no progress.
type Stood struct {
	From, To time.Time
	Pattern  string // its cause
}

// Summarize makes the summary of a run that ended of the intervals in which it stood.
func Summarize(run *Run, stood []Stood, incidents int, slowest *int) *Summary {
	s := &Summary{Incidents: incidents, Slowest: slowest, Causes: []Cause{}}
	end := run.Until()
	by := map[string][]Stood{}
	for _, i := range stood {
		if i.From.Before(run.Began) {
			i.From = run.Began
		}
		if i.To.After(end) {
			i.To = end
		}
		if i.To.After(i.From) {
			by[i.Pattern] = append(by[i.Pattern], i)
			by[""] = append(by[""], i)
		}
	}
	for pattern, intervals := range by {
		if pattern != "" {
			s.Causes = append(s.Causes, Cause{Pattern: pattern, Seconds: union(intervals).Seconds()})
		}
	}
	slices.SortFunc(s.Causes, func(a, b Cause) int {
		switch {
		case a.Seconds > b.Seconds:
			return -1
		case a.Seconds < b.Seconds:
			return 1
		}
		return strings.Compare(a.Pattern, b.Pattern)
	})
	s.Causes = s.Causes[:min(len(s.Causes), MostCauses)]
	standing := union(by[""])
	s.Standing, s.RankHours = standing.Seconds(), standing.Hours()*float64(run.RanksCount)
	if run.Ended != nil && run.EndedCount >= run.RanksCount && !run.Ended.Before(run.Began) {
		wall := run.Ended.Sub(run.Began)
		wallSeconds, moving := wall.Seconds(), (wall - standing).Seconds()
		s.Wall, s.Moving = &wallSeconds, &moving
	}
	return s
}

// union is how long any of the intervals lasts.
func union(intervals []Stood) (took time.Duration) {
	slices.SortFunc(intervals, func(a, b Stood) int { return a.From.Compare(b.From) })
	var until time.Time
	for _, i := range intervals {
		if i.From.Before(until) {
			i.From = until
		}
		if i.To.After(i.From) {
			took += i.To.Sub(i.From)
			until = i.To
		}
	}
	return took
}
