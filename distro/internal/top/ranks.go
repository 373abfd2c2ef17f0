package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// gridRows is how many rows the grid may have on the screen of ranks.
func (m *Model) gridRows() int { return max(min((m.height-headRows-footRows-2)*3/5, 32), 2) }

// ranks shows how the ranks of a job fare, and who differs.
func (m *Model) ranks(c *canvas, y, end int) {
	j := m.job()
	if j == nil || len(j.Groups) == 0 {
		text := "  asking"
		if !m.looking {
			text = "  How the ranks of this job fare is not known any more."
		}
		c.put(0, y, c.width, plain, text)
		return
	}
	made := m.gridOf(j)
	g := made.grid
	p := m.plot(g, c.width, m.gridRows())
	if m.fold == byState {
		p = plot{legend: "by state"}
	}
	y = m.drawGrid(c, g, p, shown(j.Job)+whose(j, m.namesOfSeveral()), y, c.width, end) + 1
	m.differs(c, made, y, end)
}

// differs lists the groups of ranks that fare alike, the worst and the smallest first.
func (m *Model) differs(c *canvas, made *gridded, y, end int) {
	const first = 34
	c.put(0, y, c.width, dim, "  "+pad("WHAT DIFFERS", first)+right("RANKS", 8)+right("NODES", 7))
	y++
	list, g := made.alike, made.grid
	for i, one := range list {
		if y >= end {
			return
		}
		if y == end-1 && i < len(list)-1 {
			c.put(2, y, c.width, dim, counted(len(list)-i, "more group"))
			return
		}
		who := one.ranks.Words()
		if m.fold == byState || one.ranks.Count > 1 && one.ranks.Count < 64 {
			who = "ranks " + few(one.ranks)
		}
		if one.ranks.Count == 1 {
			who = "rank " + one.ranks.Ranges
		}
		x := c.put(2, y, c.width, m.ink(looks[one.kind]), marks[one.kind]+" "+pad(words[one.kind][min(one.ranks.Count-1, 1)], 9))
		x = c.put(x, y, c.width, plain, pad(who, first-11)+right(verdict.Number(one.ranks.Count), 8)+right(verdict.Number(g.nodesOf(one.ranks)), 7)+"  ")
		c.put(x, y, c.width, plain, clip(shown(one.what), c.width-x))
		if m.rank >= 0 && one.has(m.rank) {
			c.paint(0, y, c.width, reverse)
			c.put(0, y, c.width, reverse, ">")
		}
		y++
	}
	if m.rank >= 0 && m.rank < len(g.place) && g.kinds[m.rank] != nobody && y+1 < end {
		host := g.columns[g.place[m.rank]].host
		c.put(2, y+1, c.width, dim, "under the cursor: rank "+strconv.Itoa(m.rank)+" on "+cmp.Or(shown(host), "a node that is not known"))
	}
}

func (one *group) has(rank int) bool {
	for first, last := range one.ranks.Spans() {
		if rank >= first && rank <= last {
			return true
		}
	}
	return false
}

// nodesOf is on how many nodes ranks are.
func (g *grid) nodesOf(ranks incidentview.Ranks) int {
	nodes := map[int]bool{}
	for first, last := range ranks.Spans() {
		for rank := first; rank <= min(last, len(g.place)-1); rank++ {
			if g.kinds[rank] != nobody && g.columns[g.place[rank]].host != "" {
				nodes[g.place[rank]] = true
			}
		}
	}
	return len(nodes)
}

// rankPage is one rank: how it fares, what it does, for whom it waits.
func (m *Model) rankPage(p *page) {
	j, d := m.job(), m.picture.Rank
	if j == nil || d == nil || d.Rank != m.rank {
		text := "  Nothing was told of this rank."
		if m.looking {
			text = "  asking"
		}
		p.add(span{plain, text})
		return
	}
	by, isNamed := m.picture.named(j)[d.Rank]
	k := kindOf(d.State, by, isNamed)
	p.add(span{m.ink(looks[k]), marks[k] + " " + strings.ToUpper(words[k][0])}, span{bold, "  rank " + strconv.Itoa(d.Rank) + " of " + shown(j.Job) + m.forHow(d)})
	if isNamed {
		p.field("  why", plain, by.Text)
		p.field("", dim, "incident "+short(by.Incident))
	}
	where := d.Host
	if d.Local != nil {
		where += ", local rank " + strconv.Itoa(*d.Local)
	}
	if d.GPU != "" {
		where += ", GPU " + d.GPU
	}
	if d.PID > 0 {
		where += ", " + cmp.Or(d.Process, "process") + " (pid " + strconv.FormatInt(d.PID, 10) + ")"
	}
	p.field("  where", plain, where)
	if d.Began != nil {
		p.field("  began", plain, since(*d.Began, m.moment()))
	}
	m.rankState(p, d)
	m.rankWaits(p, d)
	m.rankStack(p, j, d)
	p.blank()
	p.field("  told", dim, "newest record "+clock(d.Updated, m.moment()))
}

func (m *Model) forHow(d *history.RankDetail) string {
	switch {
	case d.Ended != nil && d.How != "":
		return ": " + shown(d.How) + " at " + clockMilli(*d.Ended, m.moment())
	case d.Ended != nil:
		return ": exit code 0 at " + clockMilli(*d.Ended, m.moment())
	case len(d.Waits) > 0:
		return " for " + lasting(d.Waits[0].Since, m.moment())
	}
	return ""
}

func (m *Model) rankState(p *page, d *history.RankDetail) {
	text := d.Thread
	for _, part := range []struct{ words, value string }{{", ", d.Activity}, {", in ", d.Syscall}, {" of ", d.File}, {", kernel ", d.Channel}} {
		if part.value != "" {
			text += part.words + part.value
		}
	}
	p.field("  thread", plain, text)
	age := func(t *time.Time) string {
		if t == nil {
			return "never, as far as was seen"
		}
		return lasting(*t, m.moment()) + " ago"
	}
	if d.CPU != nil {
		p.field("  cpu", plain, fmt.Sprintf("%.1f cores", *d.CPU))
	}
	if d.Rail != "" {
		text := shown(d.Rail)
		if d.Sends != nil {
			text += ", sends " + rate(*d.Sends)
		}
		p.field("  rail", plain, text)
	}
	if d.GPUBusy != nil {
		p.field("  gpu", plain, fmt.Sprintf("%.0f %% busy", *d.GPUBusy*100))
	}
	if s := d.Steps; s != nil {
		text := verdict.Number(s.Count) + " were told"
		if s.Count == 1 {
			text = "1 was told"
		}
		if each := s.PerStep(); each != "" {
			text += ", one in " + each
		}
		p.field("  steps", plain, text+"; the last began "+lasting(s.Last, m.moment())+" ago")
	}
	if d.Sent != nil || d.Received != nil {
		p.field("  network", plain, "last sent "+age(d.Sent)+", last received "+age(d.Received))
	}
}

func (m *Model) rankWaits(p *page, d *history.RankDetail) {
	p.blank()
	label := "  waits for"
	for _, w := range d.Waits {
		p.entry(label, line{{plain, right(lasting(w.Since, m.moment()), 12) + "  "}}, plain, w.For, w.What)
		label = ""
	}
}

// rankStack is where the rank stands, and where the others do.
func (m *Model) rankStack(p *page, j *history.RankJob, d *history.RankDetail) {
	if s := d.Stack; s != nil {
		p.blank()
		p.field("  stands", bold, s.Where)
		p.field("", plain, s.Unread)
		if s.Function != "" || s.Waits != "" {
			p.field("", plain, cmp.Or(s.Waits, "in the kernel")+map[bool]string{true: ", in " + s.Function + " of the kernel"}[s.Function != ""])
		}
		p.field("", dim, "read "+clockMilli(s.At, m.moment()))
		for _, f := range s.Frames {
			p.entry("", line{{dim, pad(f.Kind, 8)}}, plain, f.Function, f.Place)
		}
	}
	if v := m.viewOf(j); v != nil && len(v.Stacks) > 0 {
		m.stackPage(p, v)
	}
}
