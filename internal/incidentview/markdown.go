package incidentview

import (
	"fmt"
	"io"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// WriteJSON writes v as JSON over several lines.
func WriteJSON(w io.Writer, v View) error {
	raw, err := ToJSON(v)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, pretty(raw)+"\n")
	return err
}

// WriteMarkdown writes v for a ticket: CommonMark with the tables of GitHub.
func WriteMarkdown(w io.Writer, v View) error {
	var m markdown
	m.header(&v)
	if likely(v) {
		m.unseen(&v)
	}
	m.steps(&v)
	m.chain(&v)
	m.waits(&v)
	m.stacks(&v)
	m.seen(&v)
	if !likely(v) {
		m.unseen(&v)
	}
	m.near(&v)
	m.before(&v)
	m.made(&v)
	_, err := io.WriteString(w, m.String())
	return err
}

type markdown struct{ strings.Builder }

func (m *markdown) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

// plainText is text in which nothing is markup. CommonMark, 2.4: a backslash before ASCII
// punctuation makes it literal. < and & are written as entities: not all renderers follow.
// GitHub's dialect makes links of "https:" and "www." without any markup (GFM, 6.9).
func plainText(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case r == ':' && strings.HasPrefix(text[i:], ":/"):
			b.WriteString("&#58;")
		case r == '.' && i >= 3 && strings.EqualFold(text[i-3:i], "www"):
			b.WriteString("&#46;")
		case strings.ContainsRune("\\`*_{}[]#+!|~@", r):
			b.WriteString("\\" + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// codeText is text in a span of code that it cannot end: the fence is longer than any in it.
func codeText(text string) string {
	fence := strings.Repeat("`", longestRun(text)+1)
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// codeCell is codeText in a table, whose cells a | ends even in code.
func codeCell(text string) string { return codeText(strings.ReplaceAll(text, "|", "¦")) }

func longestRun(text string) int {
	longest, run := 0, 0
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	return longest
}

func (m *markdown) header(v *View) {
	drill := drillMark(v)
	m.line("# %s%s\n", drill, plainText(v.Headline))
	m.line("**%s%s** · %s\n", drill, badge(*v), plainText(certain(*v)))
	m.line("| | |\n| --- | --- |")
	m.row("where", v.Where)
	m.row("facts", v.Facts)
	m.row("since", strings.TrimSuffix(stampMilli(v.Since)+" UTC, "+sinceWords(*v), ", "))
	m.row("job", v.Job)
	if v.Ranks.Count > 0 {
		m.row("ranks", verdict.Number(v.Ranks.Count)+" hit: "+few(v.Ranks))
	}
	if v.Dead != nil {
		m.row("dead", verdict.Number(v.Dead.Count)+" died: "+few(*v.Dead))
	}
	if l := v.LostOrNone(); l != nil {
		m.row("lost", fmt.Sprintf("at most %s rank hours: %s × %s", hours(l.RankHours), lastingSeconds(l.Seconds), verdict.Number(l.Ranks)))
	}
	m.line("")
}

func (m *markdown) row(label, value string) {
	if value != "" {
		m.line("| %s | %s |", label, plainText(value))
	}
}

func (m *markdown) steps(v *View) {
	if len(v.Do) == 0 {
		return
	}
	m.line("## Do\n")
	for i, s := range v.Do {
		m.line("%d. %s", i+1, plainText(s.Text))
		if s.Command == "" {
			continue
		}
		effect := "looks at"
		if changes(s) {
			effect = "**changes**"
		}
		fence := strings.Repeat("`", max(3, longestRun(s.Command)+1))
		m.line("\n   %s %s\n\n   %ssh\n   %s\n   %s\n", effect, plainText(s.Target), fence, s.Command, fence)
	}
	m.line("")
}

func (m *markdown) chain(v *View) {
	m.line("## Led to\n")
	for _, l := range v.LedTo {
		at := codeText(offset(l.At, v.Since))
		switch l.Kind {
		case KindNear:
			m.line("- %s near: %s (%s; no rule joins it)", at, plainText(l.Text), plainText(l.Why))
		case KindCause:
			m.line("- %s **root cause: %s** (%s)", at, plainText(l.Text), plainText(l.Pattern))
		default:
			m.line("- %s %s (%s)", at, plainText(l.Text), plainText(l.Pattern))
		}
	}
	m.line("")
}

func (m *markdown) waits(v *View) {
	if len(v.Waits) == 0 {
		return
	}
	m.line("## Who waits\n")
	for _, w := range v.Waits {
		state := ""
		if w.State != "" {
			state = ", " + plainText(w.State)
		}
		direct := ""
		if w.Direct != "" {
			direct = ", " + plainText(w.Direct) + " directly"
		}
		m.line("- %s%s → %s (%s%s)", plainText(w.From), direct, plainText(w.To), plainText(w.Reason), state)
	}
	m.line("")
}

func (m *markdown) stacks(v *View) {
	if len(v.Stacks) == 0 {
		return
	}
	m.line("## Stacks\n")
	for _, s := range v.Stacks {
		m.line("%s, read %s", plainText(s.Ranks.Words()), clock(s.At))
		if s.Unread != "" {
			m.line("not read: %s\n", plainText(s.Unread))
			continue
		}
		m.line("")
		for _, f := range s.Frames {
			m.line("- %s %s %s", plainText(f.Kind), codeText(f.Function), plainText(f.Place))
		}
		m.line("")
	}
}

func (m *markdown) seen(v *View) {
	if len(v.Seen) == 0 {
		return
	}
	m.line("## Seen\n\n| since, UTC | what | source | says |\n| --- | --- | --- | --- |")
	for _, s := range v.Seen {
		times := ""
		if s.Count > 1 {
			times = " (" + verdict.Number(s.Count) + " times)"
		}
		m.line("| %s | %s | %s | %s |", clock(s.At), plainText(s.Text+times), codeCell(source(s.Source)), plainText(s.Says))
	}
	m.line("")
}

func (m *markdown) unseen(v *View) {
	if len(v.NotSeen) == 0 {
		return
	}
	m.line("## Not seen\n\n| | what | from |\n| --- | --- | --- |")
	for _, n := range v.NotSeen {
		kind := map[string]string{CannotSee: "**cannot see**", NotThere: "not there"}[n.Kind]
		if kind == "" {
			kind = "not seen"
		}
		what := plainText(n.Text)
		if n.Why != "" {
			what += " (" + plainText(n.Why) + ")"
		}
		m.line("| %s | %s | %s |", kind, what, plainText(strings.Join(n.Sources, ", ")))
	}
	m.line("")
}

func (m *markdown) near(v *View) {
	if len(v.Near) == 0 {
		return
	}
	m.line("## Near\n\nWithin 60 s before; no rule joined it.\n\n| at, UTC | what | shares |\n| --- | --- | --- |")
	for _, n := range v.Near {
		m.line("| %s | %s | %s |", clock(n.At), plainText(n.Text), plainText(n.Why))
	}
	m.line("")
}

func (m *markdown) before(v *View) {
	if v.Before == nil {
		return
	}
	m.line("## Before\n")
	for _, e := range v.Before.Alike {
		lasted := "lasted"
		if e.Open {
			lasted = "open for"
		}
		m.line("- %s UTC: %s (%s %s; %s), incident %s", stamp(e.Since), plainText(e.Headline), lasted, lastingSeconds(e.Seconds), plainText(e.Shares), codeText(short(e.ID, 8)))
	}
	switch b := v.Before; {
	case len(b.Alike) == 0:
		m.line("None of the %s incidents that are kept is like it.", verdict.Number(b.Kept))
	case b.More > 0:
		m.line("- and %s more", verdict.Number(b.More))
	}
	m.line("")
}

func (m *markdown) made(v *View) {
	m.line("## Made of\n")
	m.line("- incident %s, pattern %s", codeText(v.ID), plainText(v.Pattern))
	if v.Span.Known() {
		claimed := ""
		if v.Span.Claimed {
			claimed = " (claimed)"
		}
		m.line("- trace %s, span %s%s", codeText(v.Span.TraceID), codeText(v.Span.SpanID), claimed)
	}
	for _, text := range v.Made.Flaws {
		m.line("- flaw: %s", plainText(text))
	}
	for _, hash := range v.Made.Hashes {
		m.line("- sha256 %s", codeText(hash))
	}
	if v.Made.Again != "" {
		m.line("- again: %s", codeText(v.Made.Again))
	}
	m.line("- written %s UTC by tracecore %s, trust %s", stamp(v.Made.At), plainText(v.Made.By), v.Trust)
}
