package verdict

import (
	"io"
	"math/bits"
	"regexp"
	"strings"
)

// RenderChange writes what is new about one incident that was rendered before,
// in a line or two: a consequence, more evidence, certainty, another remedy,
// the all-clear. A change of counts alone writes nothing. An incident not
// rendered before, or whose root cause became known only now, is written whole.
// before and after are results of Merge.
func RenderChange(w io.Writer, before, after []Verdict, o Options) error {
	if len(after) == 0 {
		return nil
	}
	p := printer{o: o}
	switch {
	case len(before) == 0:
		p.incident(after, "")
	case after[0].Role == RootCause && (before[0].ID != after[0].ID || before[0].Role != RootCause):
		p.incident(after, "this is the cause of what was reported before")
	default:
		p.change(before, after)
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

func (p *printer) change(before, after []Verdict) {
	old, head := before[0], after[0]
	body := printer{o: p.o}
	body.headChange(old, after)
	body.spread(before, after)
	body.consequences(before, after)
	status, _ := head.Incident()
	over := status == Resolved
	cleared, retold := head.Status == Resolved && old.Status != Resolved, head.Status != Resolved && !sameWords(old.Headline, head.Headline)
	switch {
	case cleared:
		p.headline(p.badge(head), severityColor(head), head.Headline)
	case retold:
		p.headline(drilled(head, "UPDATE"), cyan, head.Headline)
	case body.b.Len() == 0:
		return
	case over:
		p.reminder(drilled(head, "UPDATE, cleared"), head.Headline)
	default:
		p.reminder(drilled(head, "UPDATE"), head.Headline)
	}
	p.b.WriteString(body.b.String())
	p.field("details", details(head))
	p.b.WriteByte('\n')
}

// reminder says in one line which incident an update is about: the reader has its headline.
func (p *printer) reminder(badge, headline string) {
	lines := wrap(brief(headline), lineWidth-len(badge)-len("  ")-len(" …"))
	if len(lines) > 1 {
		lines[0] += " …"
	}
	p.b.WriteString(p.paint(cyan, badge) + "  " + lines[0] + "\n")
}

// numbers are what grows with time in a headline: how long something lasts, say.
var numbers = regexp.MustCompile(`[0-9]+([.,][0-9]+)*`)

// sameWords reports whether two headlines differ in numbers at most.
func sameWords(a, b string) bool {
	return numbers.ReplaceAllString(plain(a), "0") == numbers.ReplaceAllString(plain(b), "0")
}

func (p *printer) headChange(old Verdict, after []Verdict) {
	head := after[0]
	switch {
	case head.Status == Resolved && old.Status != Resolved:
		p.field("since", p.since(head))
		p.goesOn(after)
	case old.Status == Resolved && head.Status != Resolved:
		p.field("again", "it came back after it had cleared")
	case old.GoesOn != "" && head.GoesOn == "":
		p.field("over", "what it led to is over, too")
	}
	if old.Confidence == Partial && head.Confidence == Full {
		p.field("certain", "what was missing has been seen")
	}
	if old.Severity != head.Severity {
		p.field("severity", strings.ToUpper(string(head.Severity))+", was "+string(old.Severity))
	}
	if now := where(head.Culprit); now != where(old.Culprit) {
		p.field("where", brief(now))
	}
	if now := facts(head.Culprit); now != facts(old.Culprit) {
		p.field("facts", brief(now))
	}
	if plain(old.Remediation) != plain(head.Remediation) {
		p.field("do", paragraph(head.Remediation))
	}
	p.evidence(newEvidence(old.Evidence, head.Evidence), head)
}

// newEvidence is what after has and before had not, by name.
func newEvidence(before, after []Evidence) []Evidence {
	known := map[string]bool{}
	for _, e := range before {
		known[e.Name] = true
	}
	var added []Evidence
	for _, e := range after {
		if !known[e.Name] {
			added = append(added, e)
		}
	}
	return added
}

// spread says which ranks are hit, when it matters: few, or twice as many.
func (p *printer) spread(before, after []Verdict) {
	if worthSaying(hitRanks(before), hitRanks(after)) {
		p.ranks(after)
	}
}

// consequences names new symptoms and those that cleared by themselves.
func (p *printer) consequences(before, after []Verdict) {
	known := map[string]Status{}
	for _, v := range before {
		known[v.ID] = v.Status
	}
	var led, cleared []Verdict
	for _, v := range after[1:] {
		switch status, ok := known[v.ID]; {
		case !ok:
			led = append(led, v)
		case status != Resolved && v.Status == Resolved:
			cleared = append(cleared, v)
		}
	}
	head := after[0]
	if worthSaying(len(before)-1, len(after)-1) {
		p.ledTo(led, head)
	}
	if status, _ := head.Incident(); len(cleared) > 0 && status != Resolved {
		p.field("cleared", brief(cleared[0].Headline))
		if len(cleared) > 1 {
			p.field("", "and "+plural(len(cleared)-1, "more consequence"))
		}
	}
}

// worthSaying keeps a fault that spreads over thousands of ranks from filling
// the terminal: up to mostLines each growth is said, then each doubling.
func worthSaying(before, after int) bool {
	return after > before && (after <= mostLines || bits.Len(uint(after)) > bits.Len(uint(before)))
}
