package incidentview

import (
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// drawing is the geometry of a timeline: one for a wide page, one for a phone.
type drawing struct {
	class       string
	width, left float64 // of all, of the labels
	lane        float64 // height
	above       bool    // labels stand above their lanes
	id          string  // of what is defined in it
}

var (
	wide   = drawing{class: "desk", width: 880, left: 172, lane: 40, id: "hatch-wide"}
	narrow = drawing{class: "phone", width: 380, left: 0, lane: 54, above: true, id: "hatch-narrow"}
)

const (
	top       = 30.0 // of the first lane
	barHeight = 14.0
	character = 6.4 // pixels, on average, at 12 px
	heavy     = 7.8 // the same of what is bold
)

// timeline draws the lanes, "" for none.
func timeline(v *View) template.HTML {
	if len(v.Lanes) == 0 {
		return ""
	}
	return template.HTML(wide.draw(v) + narrow.draw(v)) //nolint:gosec // numbers, own words, and text that pencil.text escapes
}

// pencil writes SVG. All text goes through text.
type pencil struct{ strings.Builder }

func (p *pencil) put(format string, args ...any) { fmt.Fprintf(p, format, args...) }

func (p *pencil) text(x, y float64, class, anchor, text string) {
	p.put(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, template.HTMLEscapeString(text))
}

func (d *drawing) draw(v *View) string {
	var p pencil
	a := newAxis(moments(v), d.left+4, d.width-10)
	height := top + d.lane*float64(len(v.Lanes))
	p.put(`<svg class="%s" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, d.class, d.width, height+24, template.HTMLEscapeString(described(v)))
	p.put(`<defs><pattern id="%s" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="sc" x1="0" y1="0" x2="0" y2="5" stroke-width="1.5"/></pattern></defs>`, d.id)
	taken := 0.0 // up to where labels stand
	for _, t := range a.ticks() {
		needs := character * float64(len(t.label))
		anchor, from := "middle", t.x-needs/2
		switch {
		case from < d.left:
			anchor, from = "start", t.x
		case t.x+needs/2 > d.width:
			anchor, from = "end", t.x-needs
		}
		p.put(`<line class="sr" x1="%.1[1]f" x2="%.1[1]f" y1="22" y2="%.1[2]f"/>`, t.x, height)
		if from >= taken {
			p.text(t.x, 14, "tm", anchor, t.label)
			taken = from + needs + 6
		}
	}
	for i := 1; i < len(a.spans); i++ {
		x, gap := a.spans[i].x0-cutWidth, a.spans[i].from.Sub(a.spans[i-1].to)
		p.put(`<rect class="fp" x="%.1f" y="22" width="%d" height="%.1f"/>`, x, cutWidth, height-22)
		p.text(x+cutWidth/2, height+16, "tm", "middle", verdict.Lasting(gap)+", no change")
	}
	since := a.x(v.Since)
	p.put(`<line class="sc" x1="%.1[1]f" x2="%.1[1]f" y1="22" y2="%.1[2]f" stroke-dasharray="3 3"/>`, since, height)
	for i := range v.Lanes {
		d.drawLane(&p, &a, &v.Lanes[i], top+d.lane*float64(i))
	}
	p.put(`<line class="sr" x1="0" x2="%.0f" y1="%.1[2]f" y2="%.1[2]f"/></svg>`, d.width, height)
	return p.String()
}

func (d *drawing) drawLane(p *pencil, a *axis, l *Lane, y float64) {
	p.put(`<line class="sr" x1="0" x2="%.0f" y1="%.1[2]f" y2="%.1[2]f"/>`, d.width, y)
	middle := y + d.lane/2
	if d.above {
		p.text(0, y+16, "tb", "start", short(l.Label, 34))
		p.text(d.width, y+16, "tm", "end", short(l.Sub, 22))
		middle = y + 36
	} else {
		p.text(0, y+17, "tb", "start", short(l.Label, 26))
		p.text(0, y+31, "tm s", "start", short(l.Sub, 28))
	}
	for _, b := range l.Bars {
		d.drawBar(p, a, b, middle)
	}
	for i, point := range l.Points {
		room := d.width - a.x(point.At)
		if i+1 < len(l.Points) {
			room = a.x(l.Points[i+1].At) - a.x(point.At)
		}
		d.drawPoint(p, a.x(point.At), room, point, middle)
	}
	d.drawLevels(p, a, l.Levels, middle)
}

func (d *drawing) drawBar(p *pencil, a *axis, b Bar, middle float64) {
	x0, x1 := a.x(b.From), a.x(b.To)
	width := max(x1-x0, 2)
	class, label := "fw sw", "tw"
	fill := ""
	switch b.Style {
	case StyleCause:
		class, label, fill = "sc", "tc", fmt.Sprintf(` fill="url(#%s)"`, d.id)
	case StyleDead:
		class, label = "fd", "tb"
	}
	p.put(`<rect class="%s"%s x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, class, fill, x0, middle-barHeight/2, width, barHeight)
	if b.Open {
		p.put(`<path class="%s open" d="M%.1f,%.1f l7,7 l-7,7z"/>`, class, x0+width, middle-barHeight/2)
	}
	needs := character * float64(utf8.RuneCountInString(b.Text))
	switch {
	case b.Style != StyleDead && needs+12 < width:
		p.text(x0+6, middle+4, label, "start", b.Text)
	case x0+width+needs+14 < d.width:
		p.text(x0+width+11, middle+4, label, "start", b.Text)
	case x0-needs-6 > d.left:
		p.text(x0-5, middle+4, label, "end", b.Text)
	}
}

func (d *drawing) drawPoint(p *pencil, x, room float64, point Point, middle float64) {
	p.put(`<path class="ink" d="M%.1f,%.1f l6,6 l-6,6 l-6,-6z"/>`, x, middle-6)
	if needs := character * float64(utf8.RuneCountInString(point.Text)); needs+20 < room {
		p.text(x+11, middle+4, "", "start", point.Text)
	}
}

// drawLevels draws how many ranks wait as an area, and how many died in words.
func (d *drawing) drawLevels(p *pencil, a *axis, levels []Level, middle float64) {
	if len(levels) == 0 {
		return
	}
	most := 1
	for _, l := range levels {
		most = max(most, l.Waiting)
	}
	base := middle + barHeight/2
	y := func(waiting int) float64 { return base - barHeight*float64(waiting)/float64(most) }
	end := a.spans[len(a.spans)-1].x1
	last := levels[len(levels)-1]
	p.put(`<path class="fw sw" d="M%.1f,%.1f`, a.x(levels[0].At), base)
	for i, l := range levels {
		x := end
		if i+1 < len(levels) {
			x = a.x(levels[i+1].At)
		}
		p.put(` L%.1f,%.1[2]f L%.1[3]f,%.1[2]f`, a.x(l.At), y(l.Waiting), x)
	}
	p.put(` L%.1f,%.1f Z"/>`, end, base)
	dead := "× " + verdict.Number(last.Dead) + " dead"
	if last.Waiting > 0 || last.Dead > 0 && most > 1 {
		text, x := verdict.Number(most)+" wait", a.x(levels[len(levels)/2].At)+6
		if taken := heavy * float64(utf8.RuneCountInString(text+dead)+2); d.above && last.Dead > 0 { // both stand in one row
			x = max(min(x, d.width-taken), a.x(levels[0].At)+2)
		}
		p.text(x, middle+4, "tw", "start", text)
	}
	if last.Dead > 0 {
		over := middle - barHeight/2 - 2
		if d.above { // what the lane is stands there
			over = middle + 4
		}
		p.text(d.width-2, over, "tb", "end", dead)
	}
}

// moments are all times at which something changes.
func moments(v *View) []time.Time {
	list := []time.Time{v.Since}
	for _, l := range v.Lanes {
		for _, b := range l.Bars {
			list = append(list, b.From, b.To)
		}
		for _, p := range l.Points {
			list = append(list, p.At)
		}
		for _, level := range l.Levels {
			list = append(list, level.At)
		}
	}
	return list
}

// described is the timeline in words, for who does not see it.
func described(v *View) string {
	var b strings.Builder
	b.WriteString("Timeline, UTC.")
	for _, l := range v.Lanes {
		fmt.Fprintf(&b, " %s:", l.Label)
		for _, bar := range l.Bars {
			fmt.Fprintf(&b, " %s from %s", bar.Text, clock(bar.From))
			if !bar.Open {
				fmt.Fprintf(&b, " to %s", clock(bar.To))
			}
			b.WriteString(";")
		}
		for _, p := range l.Points {
			fmt.Fprintf(&b, " %s at %s;", p.Text, clock(p.At))
		}
		if n := len(l.Levels); n > 0 {
			fmt.Fprintf(&b, " %d wait and %d are dead at %s;", l.Levels[n-1].Waiting, l.Levels[n-1].Dead, clock(l.Levels[n-1].At))
		}
	}
	return text(b.String(), maxText)
}

// short is text of at most most characters.
func short(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
