package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// home answers what is wrong and what to do, and how the jobs fare. It is drawn into the
// columns before right.
func (m *Model) home(c *canvas, y, end, bottom int) {
	p := &page{width: end}
	wide := end < c.width // the incident has a pane of its own
	if open := m.picture.Open(); !wide {
		if len(open) > 0 {
			m.brief(p, open)
		} else {
			m.well(p, bottom-y)
		}
		m.staleness(p)
		p.blank()
	}
	rows := m.jobRows(p, wide, bottom-y-len(p.rows))
	for i, row := range p.rows {
		if y+i >= bottom {
			return
		}
		c.draw(0, y+i, end, row)
	}
	if rows >= 0 && !m.stale() && y+rows < bottom {
		c.paint(0, y+rows, end, reverse)
	}
	y += len(p.rows)
	if j := m.job(); j != nil && len(j.Groups) > 0 {
		y = m.jobGrid(c, j, y, end, bottom, wide)
		m.details(c, y, end, bottom)
	}
}

// brief is the worst incident in a few rows.
func (m *Model) brief(p *page, open []*history.Incident) {
	one := open[0]
	m.headline(p, one)
	p.field("  since", plain, since(one.Onset, m.moment()))
	v, ok := m.picture.Views[one.ID]
	if ok && v.LostOrNone() != nil {
		p.field("  lost", plain, lost(&v))
	}
	if ok && len(v.Do) > 0 {
		rows := len(p.rows)
		p.field("  do", plain, v.Do[0].Text)
		p.shorten(rows + 2)
		if command := shown(v.Do[0].Command); command != "" && Width(command) <= p.width-labelWidth { // whole or not at all
			p.field("", bold, command)
		}
	}
	m.others(p, open)
	m.flawed(p)
}

// others says how many incidents are open beside the one that is shown. Drills are counted where
// nothing else is open.
func (m *Model) others(p *page, open []*history.Incident) {
	more := 0
	for _, i := range open[1:] {
		more += truth(i.Drill == open[0].Drill)
	}
	if more > 0 {
		p.field("", dim, "and "+counted(more, "more open incident")+m.byKey("i"))
	}
}

// byKey names the key that shows more, where there are keys.
func (m *Model) byKey(key string) string {
	if m.printed {
		return ""
	}
	return ": " + key
}

// flawed says what else is wrong with what tells.
func (m *Model) flawed(p *page) { p.field("  but", bold, m.picture.Problem) }

// headline is how bad, and what broke: three rows at most.
func (m *Model) headline(p *page, one *history.Incident) {
	lead, rows := "# "+badge(one)+"  ", len(p.rows)
	for i, text := range Wrap(shown(one.Headline), p.width-Width(lead)) {
		if i == 0 {
			p.add(span{m.ink(cause), lead}, span{bold, text})
		} else {
			p.add(span{plain, strings.Repeat(" ", Width(lead))}, span{bold, text})
		}
	}
	p.shorten(rows + 3)
}

// ink is a colour, or none where what is shown is old.
func (m *Model) ink(s style) style {
	if m.stale() && (s == cause || s == waits) {
		return plain
	}
	return s
}

func lost(v *incidentview.View) string {
	hours := fmt.Sprintf("%.1f", v.Lost.RankHours)
	if v.Lost.RankHours >= 100 {
		hours = verdict.Number(int(v.Lost.RankHours))
	}
	text := fmt.Sprintf("at most %s rank hours, of %s", hours, counted(v.Lost.Ranks, "rank"))
	if v.Job != "" {
		text += " of " + v.Job
	}
	return text
}

// well says that nothing is wrong, and what bounds that.
func (m *Model) well(p *page, room int) {
	p.add(span{bold, nothing})
	m.flawed(p)
	if s := m.picture.Status; s != nil && s.Others() {
		p.field("  agents", plain, s.AgentsInWords())
	}
	if len(m.picture.Unfed) > 0 {
		text := "nothing came from " + strings.Join(m.picture.Unfed, ", ")
		if !m.picture.Started.IsZero() {
			text += " since " + clock(m.picture.Started, m.moment()) + " UTC"
		}
		before := len(p.rows)
		p.field("  not seen", plain, text)
		if most := max(room/6, 2); len(p.rows)-before > most {
			p.rows = p.rows[:before+most]
			last := &p.rows[len(p.rows)-1][1]
			last.text = m.andOthers(last.text, p.width-labelWidth)
		}
	}
	if last := m.picture.last(); last != nil && last.Resolved != nil {
		p.field("  last", plain, fmt.Sprintf("%s UTC  %s, %s", clock(last.Onset, m.moment()), last.Headline, lasting(last.Onset, *last.Resolved)))
	}
}

// andOthers ends a list that is cut, and names the key of the whole list where there is one.
func (m *Model) andOthers(text string, columns int) string {
	tail := " and others"
	if m.picture.Status != nil {
		tail += m.byKey("s")
	}
	return strings.TrimRight(clip(text, columns-Width(tail)), ".,") + tail
}

// staleness says how old all this is, and what is tried.
func (m *Model) staleness(p *page) {
	if !m.stale() {
		return
	}
	p.field("  as of", bold, fmt.Sprintf("%s UTC, %s ago: all here is from then", clock(m.picture.At, m.moment()), lasting(m.answered, m.now)))
	p.field("  why", plain, m.problem.Error())
	if m.actions.Local != nil {
		p.field("  else", plain, "L asks the agent of this machine")
	}
}

// lastColumn is what the table of jobs ends with.
func lastColumn(list []*history.RankJob, several map[string]bool) string {
	for _, j := range list {
		if j.Counts[history.RankWaits]+j.Counts[history.RankBlocked] > 0 {
			return "WAITS FOR"
		}
	}
	for _, j := range list {
		if pace(j) != "" {
			return "PACE"
		}
	}
	if slices.ContainsFunc(list, func(j *history.RankJob) bool { return several[j.Job] }) {
		return "OF"
	}
	return ""
}

// namesOfSeveral are the names that jobs of several domains have.
func (m *Model) namesOfSeveral() map[string]bool {
	return history.NamesOfSeveral(func(yield func(string, string) bool) {
		for i := range m.picture.Jobs {
			if j := &m.picture.Jobs[i]; !yield(j.Job, j.Domain) {
				return
			}
		}
	})
}

// pace is how fast a job goes, as far as it is told.
func pace(j *history.RankJob) string {
	var parts []string
	if j.Counts[history.RankGoesOn] == 0 {
		return ""
	}
	if each := j.Steps.PerStep(); each != "" {
		parts = append(parts, each+" a step")
	}
	if j.Sends != nil {
		parts = append(parts, rate(*j.Sends))
	}
	return strings.Join(parts, ", ")
}

// rate is bytes a second, in decimal units, with three digits at most.
func rate(bytes float64) string {
	units := []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}
	at := 0
	for ; bytes >= 1000 && at < len(units)-1; at++ {
		bytes /= 1000
	}
	if bytes < 10 && at > 0 {
		return fmt.Sprintf("%.1f %s", bytes, units[at])
	}
	return fmt.Sprintf("%.0f %s", bytes, units[at])
}

// columns of the table of jobs.
type jobColumns struct{ job, waits int }

// jobRows are the jobs; it returns the row of the one that is chosen, -1 for none.
func (m *Model) jobRows(p *page, wide bool, room int) int {
	list := m.jobs()
	if len(list) == 0 {
		m.runRows(p, room)
		return -1
	}
	several, columns := m.namesOfSeveral(), jobColumns{14, 20}
	if wide {
		columns = jobColumns{30, p.width - 30 - 46}
	}
	p.add(span{dim, "  " + pad("JOB", columns.job) + right("RANKS", 9) + right("NODES", 7) + "  " + pad("STATE", 12) + right("FOR", 12) + "  " + pad(lastColumn(list, several), columns.waits)})
	most := max(min(len(list), room/5, 8), 1)
	switch {
	case m.printed:
		most = max(min(len(list), room/2), 1)
	case wide:
		most = max(min(len(list), 12), 1)
	}
	at := slices.IndexFunc(list, func(j *history.RankJob) bool { return j.Job == m.chosen.job && j.Domain == m.chosen.domain })
	from := window(len(list), most, at)
	chosen := -1
	for i := from; i < min(from+most, len(list)); i++ {
		if i == at {
			chosen = len(p.rows)
		}
		p.rows = append(p.rows, m.jobRow(list[i], columns, several, i == at))
	}
	if more := len(list) - most; more > 0 {
		p.add(span{dim, "  " + verdict.Number(more) + " more" + m.byKey("j k")})
	}
	p.blank()
	return chosen
}

func (m *Model) jobRow(j *history.RankJob, columns jobColumns, several map[string]bool, chosen bool) line {
	names := m.picture.named(j)
	k, word, from := m.state(j, names)
	lead := "  "
	if chosen {
		lead = "> "
	}
	count := verdict.Number(ranksOf(j))
	if unseen := j.Counts[history.RankUnseen]; unseen > 0 {
		count += "/" + verdict.Number(ranksOf(j)+unseen)
	}
	took := ""
	if from != nil {
		took = lasting(*from, m.moment())
	}
	drill := ""
	if j.Drill {
		drill = "DRILL "
	}
	name := columns.job + min(9-1-Width(count), 0) // a number is whole: the name gives way
	last := strings.TrimPrefix(m.waitsFor(j, names)+whose(j, several), ", ")
	return line{
		{plain, lead + pad(drill+shown(j.Job), name) + right(count, columns.job+9-name) + right(verdict.Number(j.Hosts), 7) + "  "},
		{m.ink(looks[k]), pad(marks[k]+" "+word, 12)},
		{plain, right(took, 12) + "  " + pad(last, columns.waits)},
	}
}

// whose tells a job from one of that name in another domain, where several have it.
func whose(j *history.RankJob, several map[string]bool) string {
	if !several[j.Job] {
		return ""
	}
	return ", " + shown(cmp.Or(j.Domain, "no domain"))
}

// state is how a job fares as a whole, and since when.
func (m *Model) state(j *history.RankJob, names map[int]Named) (k kind, word string, from *time.Time) {
	c := j.Counts
	standing := c[history.RankWaits] + c[history.RankBlocked]
	alive := standing + c[history.RankGoesOn] + c[history.RankSilent]
	held, slowly, isNamed := false, false, false
	for _, n := range names {
		held, slowly, isNamed = held || n.Holds, slowly || n.Slow, isNamed || !n.Holds && !n.Slow
	}
	switch {
	case standing > 0 && standing+c[history.RankSilent] == alive && (held || c[history.RankBlocked] > 0):
		return stuck, "stands", j.Since
	case standing > 0 && standing+c[history.RankSilent] == alive:
		return waiting, "stands", j.Since
	case standing > 0 && (held || c[history.RankBlocked] > 0):
		return stuck, "some wait", j.Since
	case standing > 0:
		return waiting, "some wait", j.Since
	case c[history.RankDied] > 0 && alive > 0:
		return dead, "some died", nil
	case c[history.RankDied] > 0:
		return dead, "died", nil
	case c[history.RankSilent] > 0:
		return silent, "silent", nil
	case alive == 0:
		return ended, "ended", nil
	case held || isNamed:
		return named, "goes on", j.Began
	case slowly:
		return slow, "slow", j.Began
	}
	return goesOn, "goes on", j.Began
}

// waitsFor is for whom a job waits, as verdicts name it, or else for what.
func (m *Model) waitsFor(j *history.RankJob, names map[int]Named) string {
	standing := j.Counts[history.RankWaits]+j.Counts[history.RankBlocked] > 0
	if !standing {
		return pace(j)
	}
	var who []int
	for rank, n := range names {
		if n.Holds {
			who = append(who, rank)
		}
	}
	if len(who) > 0 {
		return incidentview.RanksOf(who).Words()
	}
	for _, g := range j.Groups {
		if g.State == history.RankBlocked {
			return shown(g.What)
		}
	}
	return ""
}

// runRows are the starts of jobs that the history knows, where nothing tells of ranks.
func (m *Model) runRows(p *page, room int) {
	if len(m.picture.Runs) == 0 {
		p.field("  jobs", dim, "none was seen")
		return
	}
	p.add(span{dim, "  " + pad("JOB", 30) + right("RANKS", 9) + right("ENDED", 9) + right("FOR", 16)})
	for i := range m.picture.Runs[:min(len(m.picture.Runs), max(room-2, 1))] {
		run := &m.picture.Runs[i]
		p.add(span{plain, "  " + pad(shown(run.Job), 30) + right(verdict.Number(run.RanksCount), 9) + right(verdict.Number(run.EndedCount), 9) + right(lasting(run.Began, m.moment()), 16)})
	}
	p.field("", dim, "how their ranks fare is not known: nothing was told of them since tracecore started")
}

// plot is the grid as it is drawn in so much room.
func (m *Model) plot(g *grid, columns, rows int) plot {
	by := m.fold
	if by == byState {
		by = byNode
	}
	if m.at().screen != atRanks { // its own choice
		by = byNode
		if columns >= paneWidth && g.deep > 1 && rows > g.deep {
			by = byLocal
		}
	}
	return g.plotted(by, columns, rows, m.zoom, m.rank)
}

// jobGrid draws the ranks of the job that is chosen.
func (m *Model) jobGrid(c *canvas, j *history.RankJob, y, end, bottom int, wide bool) int {
	g := m.gridOf(j).grid
	most := 4
	if wide {
		most = 16
	}
	most = min(most, bottom-y-1)
	if most < 1 {
		return y
	}
	return m.drawGrid(c, g, m.plot(g, end, most), shown(j.Job)+whose(j, m.namesOfSeveral()), y, end, bottom) + 1
}

// drawGrid draws how many ranks fare how, and their marks.
func (m *Model) drawGrid(c *canvas, g *grid, p plot, name string, y, end, bottom int) int {
	if y >= bottom {
		return y
	}
	legend, all := end-Width(p.legend), g.summary()
	x := c.put(2, y, end, bold, clip(name, 24)) + 2
	c.put(legend, y, end, dim, p.legend)
	if taken := widthOf(all); x+taken > legend { // a row of its own
		x, legend = 2, end
		y++
	}
	for i, part := range all {
		if x+Width(part.text) > legend && i > 0 && strings.TrimSpace(part.text) != "" {
			x = 2
			y++
		}
		x = c.put(x, y, end, m.ink(part.style), part.text)
	}
	y++
	if p.head != "" && y < bottom && len(p.rows)+1 <= bottom-y {
		c.put(p.label, y, end, dim, p.head)
		y++
	}
	for _, row := range p.rows {
		if y >= bottom {
			return y
		}
		c.put(2, y, p.label, dim, row.label)
		for i, k := range row.cells {
			ink := m.ink(looks[k])
			if i == row.cursor {
				ink = reverse
			}
			c.put(p.label+i, y, end, ink, marks[k])
		}
		m.drawLine(c, p.label+len(row.cells)+1, y, end, row.note)
		y++
	}
	return y
}

// drawLine draws a line in the inks of now.
func (m *Model) drawLine(c *canvas, x, y, end int, l line) {
	for _, part := range l {
		if x+Width(part.text) > end && strings.TrimSpace(part.text) != "" {
			return // a number is whole or not there
		}
		x = c.put(x, y, end, m.ink(part.style), part.text)
	}
}

// details are who waits for whom, and where the ranks stand in their code.
func (m *Model) details(c *canvas, y, end, bottom int) {
	v := m.viewOf(m.job())
	if v == nil {
		return
	}
	p := &page{width: end}
	for i, text := range waitLines(v) {
		p.field(map[bool]string{true: "  waits"}[i == 0], plain, text)
	}
	if m.stackRows(p, v); end < m.width {
		m.stacksBeside(p, v)
	}
	for i, row := range p.rows {
		if y+i >= bottom {
			return
		}
		c.draw(0, y+i, end, row)
	}
}

// viewOf is the open incident that is about a job.
func (m *Model) viewOf(j *history.RankJob) *incidentview.View {
	if j == nil {
		return nil
	}
	for _, one := range m.picture.Open() {
		if v, ok := m.picture.Views[one.ID]; ok && about(j, v.Job, v.Culprit["job_domain"]) {
			return &v
		}
	}
	return nil
}

// waitLines are the edges of who waits for whom, joined where they follow one another.
func waitLines(v *incidentview.View) []string {
	var paths [][]incidentview.Wait
	for _, w := range v.Waits {
		at := slices.IndexFunc(paths, func(path []incidentview.Wait) bool { return path[len(path)-1].To == w.From })
		if at < 0 {
			paths = append(paths, []incidentview.Wait{w})
			continue
		}
		paths[at] = append(paths[at], w)
	}
	var lines []string
	for _, path := range paths {
		text := path[0].From
		for _, w := range path {
			text += " --" + w.Reason + "--> " + w.To
			if w.State != "" {
				text += " (" + w.State + ")"
			}
		}
		lines = append(lines, shown(text))
	}
	return lines
}

// stackRows are the groups of equal stacks, each by the innermost frame of the program.
func (m *Model) stackRows(p *page, v *incidentview.View) {
	label := "  stacks"
	for _, s := range v.Stacks {
		where := s.Unread
		if at := max(s.Here-1, 0); at < len(s.Frames) {
			where = pad(s.Frames[at].Function, 22) + "  " + s.Frames[at].Place
		}
		p.add(span{dim, pad(label, labelWidth)}, span{plain, right(verdict.Number(s.Ranks.Count), 7) + " " + pad(map[bool]string{true: "rank", false: "ranks"}[s.Ranks.Count == 1], 7) +
			clip(pad(shown(s.Wait), 12)+"  "+shown(where), p.width-labelWidth-15)})
		label = ""
	}
}
