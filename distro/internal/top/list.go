package top

import (
	"strings"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// incidents is the list of incidents: the open ones first, then the newest.
func (m *Model) incidents(c *canvas, y, end int) {
	wide := c.width >= wideWidth
	head := "  " + pad("SINCE, UTC", 15) + right("FOR", 12) + "  " + pad("STATE", 17)
	if wide {
		head += pad("NODES", 24) + pad("JOBS", 24)
	}
	c.put(0, y, c.width, dim, head+"WHAT")
	list := m.listed()
	room := max(end-y-8, 1)
	at := m.chosenRow(list)
	from := window(len(list), room, at)
	y++
	for i := from; i < min(from+room, len(list)); i++ {
		m.incidentRow(c, y, list[i], wide)
		if i == at {
			c.paint(0, y, c.width, reverse)
			c.put(0, y, c.width, reverse, ">")
		}
		y++
	}
	note := ""
	switch hidden := m.hiddenDrills(); {
	case len(list) == 0:
		note = "none that is kept matches"
	case hidden > 0 && !m.drills:
		note = counted(hidden, "drill") + " not shown: D"
	case m.picture.More:
		note = "there are older ones: `tracecore incidents --limit`"
	}
	y++
	if note != "" {
		c.put(2, y, c.width, dim, clip(note, c.width-2))
		y += 2
	}
	if len(list) > 0 {
		m.chosenIncident(c, list[at], y, end)
	}
}

// chosenIncident says of the incident under the cursor what its row has no room for.
func (m *Model) chosenIncident(c *canvas, i *history.Incident, y, end int) {
	p := &page{width: c.width}
	p.field("  what", bold, i.Headline)
	p.field("  where", plain, strings.Join(i.Nodes, ", "))
	p.field("  jobs", plain, strings.Join(i.Jobs, ", "))
	p.field("  alike", plain, m.alike(i))
	if i.Acknowledged != nil {
		p.field("  ack", plain, acknowledged(i.Acknowledged, m.moment()))
	}
	p.field("  mute", plain, m.muted(i))
	m.draw(c, p, 0, y, end)
}

// alike says which other incidents of the list are like one.
func (m *Model) alike(i *history.Incident) string {
	const most = 4
	var texts []string
	for n := range m.picture.Incidents {
		other := &m.picture.Incidents[n]
		if shares := history.Alike(i, other); shares != "" {
			texts = append(texts, other.Onset.UTC().Format("01-02 15:04")+" "+shares)
		}
	}
	text := strings.Join(texts[:min(len(texts), most)], "; ")
	if more := len(texts) - most; more > 0 {
		text += "; and " + verdict.Number(more) + " more"
	}
	return text
}

func (m *Model) hiddenDrills() int {
	n := 0
	for i := range m.picture.Incidents {
		n += truth(m.picture.Incidents[i].Drill)
	}
	return n
}

func (m *Model) incidentRow(c *canvas, y int, i *history.Incident, wide bool) {
	end := m.moment()
	if i.Status != verdict.Open && i.Resolved != nil {
		end = *i.Resolved
	}
	mark, look := "  ", plain
	if i.Status == verdict.Open {
		mark, look = "# ", cause
	}
	x := c.put(2, y, c.width, plain, pad(i.Onset.UTC().Format("01-02 15:04:05"), 15)+right(lasting(i.Onset, end), 12)+"  ")
	x = c.put(x, y, c.width, m.ink(look), mark+pad(badge(i), 15))
	if wide {
		x = c.put(x, y, c.width, plain, pad(several(i.Nodes), 23)+" "+pad(several(i.Jobs), 23)+" ")
	}
	text := shown(i.Headline)
	if i.Acknowledged != nil {
		text = "(ack) " + text
	}
	if m.muted(i) != "" {
		text = "(muted) " + text
	}
	c.put(x, y, c.width, plain, clip(text, c.width-x))
}

// several are the first of some names, and how many more there are.
func several(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	text := shown(names[0])
	if len(names) > 1 {
		text += " +" + verdict.Number(len(names)-1)
	}
	return text
}

// statusPage says who tells, and what it cannot see.
func (m *Model) statusPage(p *page) {
	s := m.picture.Status
	if s == nil {
		return
	}
	from, keeps := m.picture.Host+", tracecore "+s.Version+", since "+clock(s.Started, m.moment())+" UTC", "  keeps"
	if m.picture.Recorded {
		from, keeps = m.picture.Host, "  holds"
	}
	p.field("  from", plain, from)
	p.field(keeps, plain, counted(s.Incidents, "incident")+", "+verdict.Number(s.Open)+" open, "+verdict.Number(s.RootCauses)+" with a certain cause")
	p.field("  but", bold, s.Problem)
	p.blank()
	label := "  ails"
	for _, a := range s.Ailing {
		p.entry(label, line{{bold, pad(shown(a.Kind+" "+a.Component), 28)}}, plain, a.Error, clock(a.Since, m.moment()))
		label = ""
	}
	if s.Others() {
		p.blank()
		p.field("  agents", plain, s.AgentsInWords())
		for i := range s.WorstAgents {
			a := &s.WorstAgents[i]
			text := a.Words()
			if failing := a.Failing(); len(failing) > 0 {
				text += ", without " + strings.Join(failing, ", ")
			}
			p.entry("", line{{bold, pad(shown(a.Host), 28)}}, plain, text, clock(a.Since, m.moment()))
		}
	}
	p.blank()
	p.field("  unfed", plain, strings.Join(m.picture.Unfed, ", "))
	if len(m.picture.Unfed) > 0 {
		p.field("", dim, "nothing came from these that a pattern reads")
	}
	p.blank()
	label = "  fed"
	patterns, _ := history.FedOf(s.Feeds)
	for _, f := range patterns {
		text := "never"
		if !f.Last.IsZero() {
			text = clock(f.Last, m.moment())
		}
		p.entry(label, line{{plain, pad(shown(f.Pattern), 26) + right(verdict.Number(f.Came)+" of "+verdict.Number(f.All), 9) + "  "}}, plain, text, "")
		label = ""
	}
}
