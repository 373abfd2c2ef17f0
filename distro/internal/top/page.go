package top

import (
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// labelWidth is where text begins, behind its label.
const labelWidth = 11

// page is text in rows of a width: a column of labels, one of text.
type page struct {
	width    int
	rows     []line
	evidence int // row where it begins, 0 for none
}

func (p *page) add(parts ...span) { p.rows = append(p.rows, parts) }

func (p *page) blank() {
	if n := len(p.rows); n > 0 && len(p.rows[n-1]) > 0 {
		p.add()
	}
}

// field writes a label and its text; nothing for no text. An empty label goes on under
// the one before.
func (p *page) field(label string, s style, text string) {
	if text == "" {
		return
	}
	for i, part := range Wrap(shown(text), p.width-labelWidth) {
		if i > 0 {
			label = ""
		}
		p.add(span{dim, pad(label, labelWidth)}, span{s, part})
	}
}

// entry writes a row with something at its left, its text, and something at its right end.
func (p *page) entry(label string, lead line, s style, text, tail string) {
	leadWidth := 0
	for _, part := range lead {
		leadWidth += Width(part.text)
	}
	room := p.width - labelWidth - leadWidth
	const least = 32 // of the text
	if tail = shown(tail); tail != "" && room-Width(tail)-2 >= least {
		room -= Width(tail) + 2
	} else {
		tail = ""
	}
	for i, part := range Wrap(shown(text), room) {
		row := line{{dim, pad(label, labelWidth)}}
		if i == 0 {
			row = append(row, lead...)
		} else {
			row = append(row, span{plain, strings.Repeat(" ", leadWidth)})
		}
		row = append(row, span{s, part})
		if i == 0 && tail != "" {
			row = append(row, span{plain, strings.Repeat(" ", max(p.width-labelWidth-leadWidth-Width(part)-Width(tail), 0))}, span{dim, tail})
		}
		p.add(row...)
		label = ""
	}
}

// shorten leaves so many rows; two dots say that there were more.
func (p *page) shorten(most int) {
	if len(p.rows) <= most {
		return
	}
	p.rows = p.rows[:most]
	row := p.rows[most-1]
	at := len(row) - 1
	for at > 0 && (row[at].style == dim || strings.TrimSpace(row[at].text) == "") {
		at--
	}
	before := Width(row[at].text)
	row[at].text = pad(strings.TrimRight(clip(row[at].text, max(before-2, 2)), ". ")+"..", before)
}

// shown is text that a terminal shows as it is. What was made safe before stays the same.
func shown(text string) string { return plainer.Replace(safetext.Line(text)) }

// plainer writes marks of our own texts so that a serial console has them.
var plainer = strings.NewReplacer("…", "...", "−", "-", "·", ",")

// clock is the time of day, with the date where that is another day.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Year() != now.Year() || t.YearDay() != now.YearDay() {
		return t.Format(time.DateTime)
	}
	return t.Format("15:04:05")
}

func clockMilli(t, now time.Time) string { return clock(t, now) + t.UTC().Format(".000") }

// lasting is how long something has lasted, not less than nothing.
func lasting(from, to time.Time) string { return verdict.Lasting(max(to.Sub(from), 0)) }
