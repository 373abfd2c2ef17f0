package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// incidentPage is one incident: what to do, and why to believe it.
func (m *Model) incidentPage(p *page) {
	v, ok := m.picture.Views[m.at().incident]
	if !ok {
		if m.looking {
			p.add(span{plain, "  asking"})
		} else {
			p.add(span{plain, "  The incident is not there any more."})
		}
		return
	}
	m.incidentHead(p, &v)
	if v.Confidence != verdict.Full {
		m.notSeen(p, &v)
	}
	m.steps(p, &v)
	m.ledTo(p, &v)
	if v.Confidence == verdict.Full {
		m.notSeen(p, &v)
	}
	m.seen(p, &v)
	m.before(p, &v)
	p.blank()
	for i, text := range waitLines(&v) {
		p.field(map[bool]string{true: "  waits"}[i == 0], plain, text)
	}
	m.stackPage(p, &v)
	m.made(p, &v)
}

func (m *Model) incidentHead(p *page, v *incidentview.View) {
	for i, text := range m.title1(v) {
		p.add(span{[]style{m.ink(cause), bold}[min(i, 1)], text})
	}
	p.field("  where", plain, v.Where)
	p.field("  facts", plain, v.Facts)
	p.field("  since", plain, m.lasted(v))
	if v.Ranks.Count > 0 {
		p.field("  ranks", plain, verdict.Number(v.Ranks.Count)+" hit: "+few(v.Ranks))
	}
	if v.Dead != nil {
		p.field("  dead", plain, verdict.Number(v.Dead.Count)+" died: "+few(*v.Dead))
	}
	if v.LostOrNone() != nil {
		p.field("  lost", plain, lost(v))
	}
	for i := range m.picture.Incidents {
		if one := &m.picture.Incidents[i]; one.ID == v.ID && one.Acknowledged != nil {
			p.field("  ack", plain, acknowledged(one.Acknowledged, m.moment()))
		}
		if one := &m.picture.Incidents[i]; one.ID == v.ID {
			p.field("  mute", plain, m.muted(one))
		}
	}
}

// title1 is how bad it is, and what broke.
func (m *Model) title1(v *incidentview.View) []string {
	text := strings.ToUpper(string(v.Severity))
	if v.Drill {
		text = "DRILL, " + text
	}
	text += map[bool]string{true: ", certain", false: ", likely: not all evidence was seen"}[v.Confidence == verdict.Full]
	if v.Role == verdict.Symptom {
		text += ", no cause known"
	}
	if v.Resolved != nil {
		text = "CLEARED after " + lasting(v.Since, *v.Resolved)
	} else {
		text += ", open " + lasting(v.Since, m.moment())
	}
	return append([]string{"# " + text}, Wrap(shown(v.Headline), m.width)...)
}

func (m *Model) lasted(v *incidentview.View) string {
	text := clockMilli(v.Since, m.moment()) + " UTC"
	if v.Resolved != nil {
		return text + " to " + clockMilli(*v.Resolved, m.moment())
	}
	return text + "; newest evidence " + clock(v.Updated, m.moment())
}

func acknowledged(a *history.Acknowledgement, now time.Time) string {
	text := fmt.Sprintf("%s UTC by uid %d", clock(a.At, now), a.UID)
	if a.Note != "" {
		text += ": " + a.Note
	}
	return text
}

// muted says until when nobody is told of an incident, and why; "" where it is not muted.
func (m *Model) muted(i *history.Incident) string {
	if i.Muted == nil || !m.moment().Before(i.Muted.Until) {
		return ""
	}
	return fmt.Sprintf("until %s UTC by uid %d: %s", clock(i.Muted.Until, m.moment()), i.Muted.UID, i.Muted.Reason)
}

// few are some ranges.
func few(r incidentview.Ranks) string {
	const most = 4
	parts := strings.Split(r.Ranges, ",")
	if len(parts) > most {
		return strings.Join(parts[:most], ", ") + " and others"
	}
	return strings.Join(parts, ", ")
}

// steps are what to do. What changes something is marked.
func (m *Model) steps(p *page, v *incidentview.View) {
	p.blank()
	for i, s := range v.Do {
		label := pad("", 5) + strconv.Itoa(i+1)
		if i == 0 {
			label = "  do 1"
		}
		p.field(label, plain, s.Text)
		if s.Command == "" {
			continue
		}
		p.field("", bold, s.Command)
		if s.Effect == verdict.Changes {
			p.field("", bold, "! changes "+s.Target)
		}
	}
}

// ledTo is the chain from the cause on, by time.
func (m *Model) ledTo(p *page, v *incidentview.View) {
	p.blank()
	label := "  led to"
	for _, l := range v.LedTo {
		mark, look, tail := "- ", plain, strings.ReplaceAll(l.Pattern, "_", " ")
		switch {
		case l.Kind == incidentview.KindCause:
			mark, look = "# ", bold
		case l.Kind == incidentview.KindNear:
			mark, tail = "^ ", "near: "+l.Why
		}
		if l.Cleared {
			tail += ", cleared"
		}
		before := len(p.rows)
		p.entry(label, line{{plain, right(offset(l.At.Sub(v.Since)), 10) + " "}, {m.ink(map[bool]style{true: cause, false: plain}[mark == "# "]), mark}}, look, l.Text, tail)
		most := before + 2
		if l.Kind == incidentview.KindCause { // it is the headline
			most--
		}
		p.shorten(most)
		label = ""
	}
}

// offset is how long after the cause something was: points stand under one another.
func offset(d time.Duration) string { return fmt.Sprintf("%+.3f", d.Seconds()) }

// notSeen is what was looked for in vain: what cannot be seen first.
func (m *Model) notSeen(p *page, v *incidentview.View) {
	p.blank()
	label := "  not seen"
	for _, n := range v.NotSeen {
		kind := map[string]string{incidentview.CannotSee: "cannot see", incidentview.NotThere: "not there", incidentview.NotKnown: "not known"}[n.Kind]
		p.entry(label, line{{bold, pad(kind, 12)}}, plain, n.Text, "")
		if n.Why != "" {
			p.entry("", line{{plain, pad("", 12)}}, dim, n.Why, "")
		}
		label = ""
	}
}

// before says whether it was here before.
func (m *Model) before(p *page, v *incidentview.View) {
	if v.Before == nil {
		return
	}
	p.blank()
	label := "  before"
	for _, e := range v.Before.Alike {
		lasted := map[bool]string{true: "open for ", false: "lasted "}[e.Open] + verdict.Lasting(time.Duration(e.Seconds*float64(time.Second)))
		p.entry(label, line{{plain, e.Since.UTC().Format("01-02 15:04:05") + "  "}}, plain, e.Headline+"; "+lasted, e.Shares)
		label = ""
	}
	if len(v.Before.Alike) == 0 {
		p.field(label, plain, "none of "+counted(v.Before.Kept, "incident")+" that are kept is like it")
	}
}

func (m *Model) seen(p *page, v *incidentview.View) {
	p.blank()
	label := "  seen"
	p.evidence = len(p.rows)
	for i, s := range v.Seen {
		if slices.ContainsFunc(v.Seen[:i], func(o incidentview.Seen) bool { return o.At.Equal(s.At) && o.Text == s.Text }) {
			continue // several verdicts rest on it
		}
		text := s.Text
		if s.Count > 1 {
			text += fmt.Sprintf(" (%s times)", verdict.Number(s.Count))
		}
		p.entry(label, line{{plain, clockMilli(s.At, v.Since) + "  "}}, plain, text, s.Says)
		label = ""
	}
}

// stackPage is where the ranks stand in their code.
func (m *Model) stackPage(p *page, v *incidentview.View) {
	if len(v.Stacks) == 0 {
		return
	}
	p.blank()
	m.stackRows(p, v)
	m.stacksBeside(p, v)
}

// stacksBeside shows the smallest group beside the largest: who differs beside all others.
func (m *Model) stacksBeside(p *page, v *incidentview.View) {
	if len(v.Stacks) < 2 || len(v.Stacks[0].Frames) == 0 || len(v.Stacks[1].Frames) == 0 {
		return
	}
	p.blank()
	a, b := &v.Stacks[0], &v.Stacks[1]
	half := p.width/2 - 1
	p.add(span{bold, pad(stackHead(a), half+2)}, span{bold, pad(stackHead(b), half)})
	ahead := max(len(a.Frames)-a.Shared, len(b.Frames)-b.Shared)
	for i := range ahead + a.Shared {
		if i == ahead && a.Shared > 0 {
			text := " same in both from here "
			side := max(p.width-len(text), 0) / 2
			p.add(span{dim, strings.Repeat("-", side) + text + strings.Repeat("-", side)})
		}
		p.add(append(frameAt(a, i, ahead, half), append(line{{plain, "  "}}, frameAt(b, i, ahead, half)...)...)...)
	}
}

func stackHead(s *incidentview.Stack) string {
	return strings.Join([]string{s.Ranks.Words(), shown(s.Wait), shown(s.Thread)}, ", ")
}

// frameAt is the frame in a row: those that both stacks have stand beside each other.
func frameAt(s *incidentview.Stack, row, ahead, columns int) line {
	own := len(s.Frames) - s.Shared
	at := row
	if row >= ahead {
		at = own + row - ahead
	} else if row >= own {
		return line{{plain, strings.Repeat(" ", columns)}}
	}
	if at >= len(s.Frames) {
		return line{{plain, strings.Repeat(" ", columns)}}
	}
	f := s.Frames[at]
	look := plain
	if s.Here == at+1 {
		look = bold
	}
	place := shown(f.Place)
	name := shown(f.Function)
	room := columns - 8 - min(Width(place), columns/2) - 1
	return line{{dim, pad(f.Kind, 8)}, {look, pad(name, room)}, {dim, " " + right(place, columns-9-room)}}
}

func (m *Model) made(p *page, v *incidentview.View) {
	p.blank()
	text := "incident " + v.ID
	if v.Made.Records > 0 {
		text += ", made from " + verdict.Number(v.Made.Records) + " records"
	}
	p.field("  ids", dim, text)
	for _, flaw := range v.Made.Flaws {
		p.field("", dim, flaw)
	}
}

// pane is the worst incident beside the jobs.
func (m *Model) pane(c *canvas, x, y, end int) {
	p := &page{width: c.width - x}
	m.staleness(p)
	open := m.picture.Open()
	switch {
	case len(open) == 0:
		m.well(p, end-y)
	default:
		one := open[0]
		v, ok := m.picture.Views[one.ID]
		if !ok {
			m.brief(p, open)
			break
		}
		p.add(span{dim, "INCIDENT "}, span{plain, short(v.ID)})
		p.blank()
		m.headline(p, one)
		m.flawed(p)
		p.blank()
		p.field("  where", plain, v.Where)
		p.field("  since", plain, since(v.Since, m.moment()))
		if v.LostOrNone() != nil {
			p.field("  lost", plain, lost(&v))
		}
		m.steps(p, &v)
		m.ledTo(p, &v)
		m.notSeen(p, &v)
		m.seen(p, &v)
		p.blank()
		m.others(p, open)
	}
	for i, row := range p.rows {
		if y+i >= end {
			return
		}
		c.draw(x, y+i, c.width, row)
	}
}
