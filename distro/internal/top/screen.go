package top

import (
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	headRows = 2 // the title and a blank
	footRows = 1 // the keys

	leastWidth, leastHeight = 80, 15 // below, the incident alone is shown
	paneWidth               = 140    // of jobs and ranks, where the incident stands beside them
	wideWidth               = 160    // from here on it does
)

// Screen draws the screen: as many rows as it is high, each as wide as it is.
func (m *Model) Screen() []string { return m.canvas().lines(m.colors) }

// Text is the first screen as text, as long as it needs to be.
func (m *Model) Text() string {
	m.width, m.height, m.printed = leastWidth, 1<<10, true
	c := newCanvas(m.width, m.height)
	m.title(c)
	m.home(c, headRows, c.width, 1<<10)
	return strings.TrimRight(c.text(), "\n") + "\n"
}

func (m *Model) canvas() *canvas {
	c := newCanvas(m.width, m.height)
	if m.width < leastWidth || m.height < leastHeight {
		m.small(c)
		return c
	}
	m.title(c)
	end := c.height - footRows
	switch {
	case m.help:
		m.draw(c, m.helpPage(), 0, headRows, end)
	case m.answered.IsZero():
		m.draw(c, m.waitingPage(), 0, headRows, end)
	default:
		m.body(c, end)
	}
	m.foot(c)
	return c
}

func (m *Model) body(c *canvas, end int) {
	switch m.at().screen {
	case atIncident, atStatus, atRank:
		p := m.text()
		room := m.textRows(len(p.rows))
		m.at().scroll = max(min(m.at().scroll, len(p.rows)-room), 0)
		m.draw(c, p, m.at().scroll, headRows, headRows+room)
		if left := len(p.rows) - m.at().scroll - room; left > 0 {
			text := right("more: "+counted(left, "row")+", space", c.width)
			c.put(0, end-1, c.width, dim, text)
		}
	case atIncidents:
		m.incidents(c, headRows, end)
	case atRanks:
		m.ranks(c, headRows, end)
	default:
		if c.width < wideWidth {
			m.home(c, headRows, c.width, end)
			return
		}
		m.home(c, headRows, paneWidth, end)
		m.pane(c, paneWidth+2, headRows, end)
	}
}

// textRows is how many rows of a text are shown at once: one less where some are not.
func (m *Model) textRows(rows int) int {
	room := m.height - headRows - footRows
	if rows > room {
		room--
	}
	return max(room, 1)
}

// text is the page of a screen that is all text.
func (m *Model) text() *page {
	p := &page{width: m.width}
	switch m.at().screen {
	case atIncident:
		m.incidentPage(p)
	case atStatus:
		m.statusPage(p)
	case atRank:
		m.rankPage(p)
	default:
	}
	return p
}

func (m *Model) draw(c *canvas, p *page, from, y, end int) {
	for _, row := range p.rows[min(from, len(p.rows)):] {
		if y >= end {
			return
		}
		c.draw(0, y, c.width, row)
		y++
	}
}

// title is the first row: who tells, where one is, and the time.
func (m *Model) title(c *canvas) {
	at := m.clock().UTC().Format("15:04:05") + " UTC"
	if m.picture.Recorded {
		at = "recorded to " + m.moment().UTC().Format(time.DateTime) + " UTC"
	}
	if m.paused {
		at = "paused " + at
	}
	if m.picture.At.IsZero() {
		at = ""
	}
	room := c.width - Width(at) - 2
	x := c.put(0, 0, room, bold, "tracecore")
	if m.stale() {
		text := " NO ANSWER"
		if !m.failed.IsZero() && !m.answered.IsZero() {
			text += " for " + lasting(m.answered, m.now)
		}
		c.put(x+2, 0, room, reverse, clip(text+" from "+shown(m.picture.Host)+" ", room-x-2))
	} else {
		x = c.put(x+2, 0, room, plain, clip(shown(m.path()), room-x-2))
		if total := m.total(); m.at().screen == atHome && x+3+Width(total) <= room { // whole or not at all
			c.put(x+3, 0, room, dim, total)
		}
	}
	c.put(c.width-Width(at), 0, c.width, plain, at)
}

// path is where one is: the filter of all that is shown.
func (m *Model) path() string {
	words := []string{m.picture.Host}
	for _, p := range m.places[1:] {
		switch p.screen {
		case atIncidents:
			words = append(words, "incidents")
		case atIncident:
			words = append(words, "incident "+short(p.incident))
		case atRanks:
			name := m.chosen.job
			if j := m.job(); j != nil {
				name += whose(j, m.namesOfSeveral())
			}
			words = append(words, name)
		case atRank:
			words = append(words, "rank "+strconv.Itoa(m.rank))
		case atStatus:
			words = append(words, "status")
		default:
		}
	}
	if m.filter != "" {
		words = append(words, "/"+m.filter)
	}
	return strings.Join(words, " > ")
}

// short is as much of an id as tells incidents apart.
func short(id string) string {
	const most = 8
	return shown(id[:min(len(id), most)])
}

func (m *Model) total() string {
	n := 0
	for i := range m.picture.Jobs {
		n += ranksOf(&m.picture.Jobs[i])
	}
	if len(m.picture.Jobs) == 0 {
		return ""
	}
	return counted(len(m.picture.Jobs), "job") + ", " + counted(n, "rank")
}

// foot is the last row: what was done, or the keys.
func (m *Model) foot(c *canvas) {
	y := c.height - 1
	if m.note != "" && !m.typing {
		c.put(0, y, c.width, bold, clip(shown(m.note), c.width))
		return
	}
	c.draw(0, y, c.width, m.written())
}

// small is the incident alone, where there is no room for more.
func (m *Model) small(c *canvas) {
	p := &page{width: c.width}
	switch open := m.picture.Open(); {
	case m.stale():
		p.rows = append(p.rows, line{{reverse, "NO ANSWER"}})
	case m.answered.IsZero():
		p.rows = append(p.rows, line{{plain, "asking"}})
	case len(open) == 0:
		for _, text := range Wrap(nothing, c.width) {
			p.add(span{plain, text})
		}
	}
	for _, text := range Wrap(shown(m.picture.Problem), c.width-len("but ")) {
		if m.picture.Problem != "" {
			p.add(span{bold, clip("but "+text, c.width)})
		}
	}
	if open := m.picture.Open(); len(open) > 0 {
		one := open[0]
		for _, text := range Wrap("# "+badge(one)+"  "+shown(one.Headline), c.width) {
			p.add(span{cause, text})
		}
		p.add(span{plain, clip("since "+clock(one.Onset, m.moment())+" UTC, "+lasting(one.Onset, m.moment()), c.width)})
		if v, ok := m.picture.Views[one.ID]; ok && len(v.Do) > 0 {
			for _, text := range Wrap("do "+shown(v.Do[0].Text), c.width) {
				p.add(span{plain, text})
			}
		}
	}
	m.draw(c, p, 0, 0, c.height)
}

const nothing = ". Nothing is wrong that tracecore can see."

// badge is how bad an incident is, and how certain.
func badge(i *history.Incident) string {
	text := strings.ToUpper(string(i.Severity))
	switch {
	case i.Status != verdict.Open:
		text = "CLEARED"
	case i.Confidence == verdict.Partial:
		text += ", likely"
	}
	if i.Drill {
		text = "DRILL, " + text
	}
	return text
}

func (m *Model) waitingPage() *page {
	p := &page{width: m.width}
	if m.problem == nil {
		p.add(span{plain, "  asking"})
		return p
	}
	p.field("  why", plain, m.problem.Error())
	p.field("  else", plain, "does tracecore run there, with the extension history? `tracecore top RECORDING` shows a recording")
	return p
}

// helpPage says what the keys of this screen do, and no others.
func (m *Model) helpPage() *page {
	p := &page{width: m.width}
	for _, k := range m.keys() {
		if k.label != "" {
			p.add(span{bold, "  " + pad(k.label, labelWidth-2)}, span{plain, k.does})
		}
	}
	p.blank()
	p.field("  marks", plain, "# stuck, or named by an incident; x dead; ? silent or not seen; ~ slow; - waits; . goes on; : ended")
	p.field("", dim, "A mark of several ranks shows the worst of them. A rank goes on while nothing tells of a stall or of its end.")
	p.field("  times", dim, "UTC, of the machine that tells")
	return p
}

// since is when something began and how long ago that is.
func since(t, now time.Time) string { return clockMilli(t, now) + " UTC, " + lasting(t, now) }
