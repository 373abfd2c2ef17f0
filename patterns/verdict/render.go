package verdict

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Options of Render and RenderChange.
type Options struct {
	// Color marks severities and labels with terminal colours.
	Color bool
	// Now is the time of reading: it gives ages and the zone that times are
	// shown in. Without it times are in UTC and have no age.
	Now time.Time
}

// Render writes verdicts in plain words for a terminal, one block per incident:
// what, where, since when, what to do, what was seen and when, what was not,
// and below the root cause what it led to. Text from outside cannot reach the
// terminal's controls, and each list has a most that is shown.
func Render(w io.Writer, verdicts []Verdict, o Options) error {
	p := printer{o: o}
	for _, incident := range Incidents(verdicts) {
		p.incident(incident, "")
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// RenderNotice writes one sentence that is no verdict, under a badge as a headline is.
func RenderNotice(w io.Writer, badge, text string, o Options) error {
	p := printer{o: o}
	p.headline(badge, cyan, text)
	p.b.WriteByte('\n')
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Layout: a label starts in column 2, its text in column 12.
const (
	lineWidth   = 100
	labelIndent = "  "
	labelWidth  = 10
	clockFormat = "15:04:05.000"
	mostLines   = 8   // of evidence, of things not seen, of symptoms
	mostRunes   = 400 // of one text
)

// ANSI colours (ECMA-48 SGR).
const (
	bold   = "1"
	dim    = "2"
	red    = "1;31"
	yellow = "1;33"
	green  = "1;32"
	cyan   = "1;36"
)

type printer struct {
	b strings.Builder
	o Options
}

// incident writes a whole incident, root cause first.
func (p *printer) incident(verdicts []Verdict, note string) {
	head := verdicts[0]
	p.headline(p.badge(head), severityColor(head), head.Headline)
	p.field("note", note)
	if head.Role == Symptom {
		p.field("note", "this is a symptom; its cause was reported before")
	}
	p.field("where", brief(where(head.Culprit)))
	p.field("facts", brief(facts(head.Culprit)))
	p.field("since", p.since(head))
	p.field("do", paragraph(head.Remediation))
	p.evidence(head.Evidence, head)
	p.notSeen(head.NotObserved)
	p.ranks(verdicts)
	p.ledTo(verdicts[1:], head)
	p.field("details", details(head))
	p.b.WriteByte('\n')
}

func (p *printer) badge(v Verdict) string {
	text := strings.ToUpper(string(v.Severity))
	switch {
	case v.GoesOn != "":
		text = "CAUSE CLEARED"
	case v.Status == Resolved:
		text = "CLEARED"
	case v.Confidence == Partial:
		text += ", likely"
	}
	return drilled(v, text)
}

// drilled marks what is said of a drill.
func drilled(v Verdict, text string) string {
	if v.Drill {
		return "DRILL, " + text
	}
	return text
}

func severityColor(v Verdict) string {
	switch {
	case v.Status == Resolved && v.GoesOn == "":
		return green
	case v.Severity == Warning:
		return yellow
	case v.Severity == Info:
		return cyan
	}
	return red
}

func (p *printer) since(v Verdict) string {
	if v.Resolved != nil && v.Status == Resolved {
		return fmt.Sprintf("%s to %s, %s", p.clock(v.Onset, p.o.Now), p.zoned(*v.Resolved, v.Onset), lasting(v.Resolved.Sub(v.Onset)))
	}
	since := p.zoned(v.Onset, p.o.Now)
	if v.Late {
		since += ", read late"
	}
	if age := p.o.Now.Sub(v.Onset); !p.o.Now.IsZero() && age >= 0 {
		since += ", " + lasting(age) + " ago"
	}
	return since
}

// clock is the time of day of t, with the date when it is not reference's.
func (p *printer) clock(t, reference time.Time) string {
	t = t.In(p.o.Now.Location())
	if reference.IsZero() || !sameDay(t, reference) {
		return t.Format(time.DateOnly + " " + clockFormat)
	}
	return t.Format(clockFormat)
}

func (p *printer) zoned(t, reference time.Time) string {
	return p.clock(t, reference) + t.In(p.o.Now.Location()).Format(" MST")
}

func (p *printer) evidence(evidence []Evidence, of Verdict) {
	label := "seen"
	for i, e := range inTime(evidence) {
		if i == mostLines {
			p.field("", fmt.Sprintf("and %d more in %s", len(evidence)-i, AttrJSON))
			return
		}
		p.timed(label, e.Time, of.Onset, p.shows(e, of.Trust))
		label = ""
	}
}

func inTime(evidence []Evidence) []Evidence {
	return slices.SortedStableFunc(slices.Values(evidence), func(a, b Evidence) int { return a.Time.Compare(b.Time) })
}

// shows is e in words; what is trusted less than its verdict says so.
func (p *printer) shows(e Evidence, trust Trust) string {
	text := brief(e.Shows)
	if e.Count > 1 {
		text += " (" + strconv.FormatUint(e.Count, 10) + " times"
		if e.Last.After(e.Time) {
			text += ", last " + p.clock(e.Last, e.Time)
		}
		text += ")"
	}
	source := plain(e.Source)
	if e.Late {
		source += ", read late: no agent looked when it happened"
	}
	if e.Trust < trust {
		source += ", " + e.Trust.String()
	}
	return text + "  [" + source + "]"
}

func (p *printer) notSeen(things []string) {
	label := "not seen"
	for i, thing := range things {
		if i == mostLines {
			p.field("", fmt.Sprintf("and %d more in %s", len(things)-i, AttrJSON))
			return
		}
		p.field(label, brief(thing))
		label = ""
	}
}

// ranks names the ranks hit by the whole incident, unless it is the one rank
// that "where" names already.
func (p *printer) ranks(incident []Verdict) {
	hit := RanksByJob(incident)
	if len(hit) == 1 {
		if words := RanksInWords(hit[0].Ranks); words != incident[0].Culprit["rank"] {
			p.field("ranks hit", words)
		}
		return
	}
	var parts []string
	for _, one := range hit {
		words := RanksInWords(one.Ranks)
		if one.Job != "" {
			words += " of job " + plain(one.Job)
		}
		parts = append(parts, words)
	}
	p.field("ranks hit", brief(strings.Join(parts, "; ")))
}

// JobRanks are the ranks of one job that an incident hits.
type JobRanks struct {
	Job   string // "" where that is not known
	Ranks []int
}

// RanksByJob returns the ranks hit by an incident: rank 1 of another job is another one. The job
// that the incident names first comes first. Ranks of verdicts that name no job are of the only job,
// or else those that no job has.
func RanksByJob(incident []Verdict) []JobRanks {
	var all []JobRanks
	var domains []string // whose job it is, of each
	var unnamed, named []int
	for i := range incident {
		v := &incident[i]
		job, domain := v.Culprit["job"], v.Culprit["job_domain"]
		if job == "" {
			unnamed = append(unnamed, v.BlastRadius...)
			continue
		}
		at := 0
		for at < len(all) && (all[at].Job != job || domains[at] != "" && domain != "" && domains[at] != domain) {
			at++
		}
		if at == len(all) {
			all, domains = append(all, JobRanks{Job: job}), append(domains, domain)
		}
		all[at].Ranks, domains[at] = append(all[at].Ranks, v.BlastRadius...), cmp.Or(domains[at], domain)
		named = append(named, v.BlastRadius...)
	}
	slices.Sort(named)
	unnamed = slices.DeleteFunc(unnamed, func(rank int) bool {
		_, there := slices.BinarySearch(named, rank)
		return there
	})
	switch {
	case len(unnamed) == 0:
	case len(all) == 1:
		all[0].Ranks = append(all[0].Ranks, unnamed...)
	default:
		all = append(all, JobRanks{Ranks: unnamed})
	}
	for i := range all {
		slices.Sort(all[i].Ranks)
		all[i].Ranks = slices.Compact(all[i].Ranks)
	}
	return slices.DeleteFunc(all, func(one JobRanks) bool { return len(one.Ranks) == 0 })
}

// hitRanks is how many ranks an incident hits.
func hitRanks(incident []Verdict) (n int) {
	for _, one := range RanksByJob(incident) {
		n += len(one.Ranks)
	}
	return n
}

func (p *printer) ledTo(symptoms []Verdict, head Verdict) {
	label := "led to"
	for i, s := range symptoms {
		if i == mostLines {
			p.field("", "and "+plural(len(symptoms)-i, "more consequence"))
			return
		}
		p.timed(label, s.Onset, head.Onset, symptomWords(s, head))
		label = ""
	}
}

// goesOn names what a cause that is over led to and that is not.
func (p *printer) goesOn(verdicts []Verdict) {
	if verdicts[0].GoesOn == "" {
		return
	}
	for _, s := range verdicts[1:] {
		if s.Status == Open {
			p.field("goes on", brief(s.Headline))
			return
		}
	}
}

func symptomWords(s, head Verdict) string {
	text := brief(s.Headline)
	if host := plain(s.Culprit["host"]); host != "" && host != plain(head.Culprit["host"]) {
		text += ", on " + host
	}
	if status, _ := head.Incident(); s.Status == Resolved && status != Resolved {
		text += " (cleared)"
	}
	return text
}

func details(v Verdict) string {
	pattern := "pattern " + plain(v.Pattern)
	if v.PatternID > 0 {
		pattern += fmt.Sprintf(" (%d)", v.PatternID)
	}
	pattern += ", incident " + plain(v.IncidentID)
	if v.Span.Known() {
		pattern += ", trace " + plain(v.Span.TraceID)
		if v.Span.Claimed {
			pattern += " (claimed)"
		}
	}
	return pattern
}

func (p *printer) headline(badge, color, text string) {
	column := len(badge) + len("  ")
	for i, line := range wrap(brief(text), lineWidth-column) {
		if i == 0 {
			p.b.WriteString(p.paint(color, badge) + "  ")
		} else {
			p.b.WriteString(strings.Repeat(" ", column))
		}
		p.b.WriteString(p.paint(bold, line) + "\n")
	}
}

// timed writes a field whose text begins with a time of day.
func (p *printer) timed(label string, t, reference time.Time, text string) {
	at := p.clock(t, reference) + "  "
	p.hanging(label, at, text)
}

// field writes a labelled text; an empty text writes nothing.
func (p *printer) field(label, text string) {
	if text != "" {
		p.hanging(label, "", text)
	}
}

func (p *printer) hanging(label, lead, text string) {
	column := len(labelIndent) + labelWidth + len(lead)
	for i, line := range wrap(text, lineWidth-column) {
		if i == 0 {
			p.b.WriteString(labelIndent + p.paint(dim, fmt.Sprintf("%-*s", labelWidth, label)) + lead)
		} else {
			p.b.WriteString(strings.Repeat(" ", column))
		}
		p.b.WriteString(line + "\n")
	}
}

func (p *printer) paint(color, text string) string {
	if !p.o.Color || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// brief is a text made safe and cut for the terminal.
func brief(text string) string {
	text = sized(plain(text))
	if utf8.RuneCountInString(text) <= mostRunes {
		return text
	}
	return string([]rune(text)[:mostRunes]) + "..."
}

// paragraph is a longer text made safe.
func paragraph(text string) string { return sized(plain(clip(text, MaxRemediationBytes))) }

// wrap breaks text at spaces into lines of at most width characters; a longer
// word has a line of its own, so that a path or an id can be copied whole.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, strings.TrimRight(line, " "))
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
