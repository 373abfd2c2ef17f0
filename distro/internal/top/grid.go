package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// kind is how a rank fares, the worse the larger: of the ranks that share a mark the worst
// is shown, so that one among thousands is not lost.
type kind uint8

const (
	nobody kind = iota
	ended
	goesOn
	waiting
	slow
	unseen
	silent
	dead
	named // by an open verdict; it does not stand itself
	stuck // it stands, and others wait for it or a mount does not answer it
	kinds
)

// marks and words of each kind; one rank, several ranks.
var (
	marks = [kinds]string{" ", ":", ".", "-", "~", "?", "?", "x", "#", "#"}
	words = [kinds][2]string{
		{"", ""}, {"ended", "ended"}, {"goes on", "go on"}, {"waits", "wait"}, {"slow", "slow"}, {"not seen", "not seen"}, {"silent", "silent"}, {"dead", "dead"}, {"named", "named"}, {"stuck", "stuck"},
	}
	looks = [kinds]style{plain, dim, plain, waits, bold, bold, bold, plain, cause, cause}
)

// inWords is how many ranks fare so: "1,023 wait".
func (k kind) inWords(n int) string {
	return verdict.Number(n) + " " + words[k][min(n-1, 1)]
}

// kindOf is how a rank fares, by its state and by what verdicts say of it.
func kindOf(state string, by Named, isNamed bool) kind {
	k := map[string]kind{
		history.RankBlocked: stuck, history.RankDied: dead, history.RankSilent: silent, history.RankUnseen: unseen,
		history.RankWaits: waiting, history.RankGoesOn: goesOn, history.RankEnded: ended,
	}[state]
	switch {
	case !isNamed || k == dead || k == ended || k == stuck:
		return k
	case by.Holds:
		return stuck
	case by.Slow:
		return max(k, slow)
	}
	return named
}

// column is a machine with its ranks, each in the row of its number on that machine.
type column struct {
	host  string
	ranks []int // -1: nothing there
}

// grid is how the ranks of a job fare: a column for each node, a row for each rank on it.
type grid struct {
	columns []column
	kinds   []kind // by rank
	place   []int  // column, by rank
	counts  [kinds]int
	deep    int // rows
}

const (
	mostDeep    = 64      // ranks on one node
	mostPlotted = 1 << 17 // ranks; a job may say that it has any number
)

// gridOf places the ranks of a job. Ranks that were not seen are placed by their number,
// unless most were not: an agent sees those of its own node.
func gridOf(j *history.RankJob, names map[int]Named) *grid {
	g := &grid{}
	seen := ranksOf(j)
	for _, group := range j.Groups {
		if group.State == history.RankUnseen && group.Count > seen {
			continue
		}
		for first, last := range (incidentview.Ranks{Ranges: group.Ranks}).Spans() {
			for rank := first; rank <= min(last, mostPlotted-1); rank++ {
				by, isNamed := names[rank]
				g.set(rank, kindOf(group.State, by, isNamed))
			}
		}
	}
	g.place = make([]int, len(g.kinds))
	placed := make([]bool, len(g.kinds))
	for _, node := range j.Nodes {
		g.columns = append(g.columns, g.columnOf(&node, placed))
	}
	g.unplaced(placed)
	slices.SortStableFunc(g.columns, func(a, b column) int { return cmp.Compare(a.first(), b.first()) })
	for i, c := range g.columns {
		g.deep = max(g.deep, len(c.ranks))
		for _, rank := range c.ranks {
			if rank >= 0 {
				g.place[rank] = i
			}
		}
	}
	for _, k := range g.kinds {
		g.counts[k]++
	}
	return g
}

func (g *grid) set(rank int, k kind) {
	for len(g.kinds) <= rank {
		g.kinds = append(g.kinds, nobody)
	}
	g.kinds[rank] = k
}

func (c *column) first() int {
	at := slices.IndexFunc(c.ranks, func(rank int) bool { return rank >= 0 })
	if at < 0 {
		return -1
	}
	return c.ranks[at]
}

// columnOf is a node with its ranks.
func (g *grid) columnOf(node *history.RankNode, placed []bool) column {
	c := column{host: node.Host}
	var list []int
	for first, last := range (incidentview.Ranks{Ranges: node.Ranks}).Spans() {
		for rank := first; rank <= last && rank < len(g.kinds); rank++ {
			list = append(list, rank)
		}
	}
	local := strings.Split(node.Local, ",")
	for i, rank := range list {
		row := i
		if n, err := strconv.Atoi(local[min(i, len(local)-1)]); err == nil && len(local) == len(list) && n >= 0 && n < mostDeep {
			row = n
		}
		for len(c.ranks) <= row {
			c.ranks = append(c.ranks, -1)
		}
		c.ranks[row], placed[rank] = rank, true
	}
	return c
}

// unplaced makes columns of the ranks of which nobody knows where they are, as deep as
// the others.
func (g *grid) unplaced(placed []bool) {
	deep := 1
	for _, c := range g.columns {
		deep = max(deep, len(c.ranks))
	}
	var now *column
	for rank, k := range g.kinds {
		if k == nobody || placed[rank] {
			now = nil
			continue
		}
		if now == nil || rank%deep == 0 || len(now.ranks) == deep {
			g.columns = append(g.columns, column{})
			now = &g.columns[len(g.columns)-1]
		}
		now.ranks = append(now.ranks, rank)
	}
}

// summary is how many ranks fare how; what there is none of is left out. Waiting ranks
// come first, then the worst.
func (g *grid) summary() line {
	var l line
	for _, k := range []kind{waiting, stuck, named, dead, silent, unseen, slow, goesOn, ended} {
		if n := g.counts[k]; n > 0 {
			l = append(l, span{looks[k], marks[k] + " " + k.inWords(n)}, span{plain, "  "})
		}
	}
	return l
}

// next is the next rank that differs from most, after a rank, round and round; -1 for none.
func (g *grid) next(after int) int {
	most := goesOn
	for k := range g.counts {
		if kind(k) != nobody && g.counts[k] > g.counts[most] {
			most = kind(k)
		}
	}
	for i := range g.kinds {
		rank := (max(after, -1) + 1 + i) % len(g.kinds)
		if k := g.kinds[rank]; k != nobody && k != most {
			return rank
		}
	}
	return -1
}

// beside is the rank before (-1) or after (+1) one; itself where there is none.
func (g *grid) beside(rank, step int) int {
	for at := rank + step; at >= 0 && at < len(g.kinds); at += step {
		if g.kinds[at] != nobody {
			return at
		}
	}
	return rank
}

// folds are by what ranks share a mark.
type fold uint8

const (
	byNode  fold = iota // a mark is a node, or several
	byLocal             // a row is a rank on its node, a mark some nodes of it
	byState             // no grid: the groups alone
	folds
)

// plot is a grid as it is drawn.
type plot struct {
	head   string // above the marks
	rows   []plotRow
	label  int // columns before the marks
	legend string
	per    int // nodes of one mark
}

type plotRow struct {
	label  string
	cells  []kind
	cursor int // of cells, -1 for none
	note   line
}

// Columns of labels before the marks.
const (
	nodeLabel  = 14
	localLabel = 6
)

// marksIn is how many marks stand in a row: 32, 64, 128, so that columns are nodes of a
// round number.
func marksIn(columns, label int) int {
	marks := 32
	for marks*2 <= columns-label {
		marks *= 2
	}
	return marks
}

// doubled is how many nodes share a mark, so that all have room: 1, 2, 4, …
func doubled(nodes, room int) int {
	per := 1
	for per*room < nodes {
		per *= 2
	}
	return per
}

// plotted folds a grid into so many columns and rows. Zoomed, fewer nodes share a mark,
// and those around the cursor are shown.
func (g *grid) plotted(by fold, columns, rows, zoom, cursor int) plot {
	n := len(g.columns)
	if n == 0 || rows < 1 {
		return plot{per: 1}
	}
	if by == byLocal && g.deep < rows {
		return g.plottedByLocal(marksIn(columns, localLabel), zoom, cursor)
	}
	if columns = marksIn(columns, nodeLabel); len(g.kinds) <= columns*rows {
		return g.plottedByRank(columns, cursor)
	}
	per := max(doubled(n, columns*rows)>>zoom, 1)
	p := plot{per: per, label: nodeLabel, legend: "mark = " + counted(per, "node")}
	cells := g.cells(per, -1)
	at := g.cellOf(cursor, per)
	from := window(len(cells), columns*rows, at)
	for start := from; start < min(len(cells), from+columns*rows); start += columns {
		end := min(start+columns, len(cells))
		row := plotRow{label: "rank " + strconv.Itoa(g.columns[start*per].first()), cells: cells[start:end], cursor: -1}
		if at >= start && at < end {
			row.cursor = at - start
		}
		p.rows = append(p.rows, row)
	}
	return p
}

// plottedByRank has a mark for each rank, in their order.
func (g *grid) plottedByRank(columns, cursor int) plot {
	p := plot{per: 1, label: nodeLabel, legend: "mark = 1 rank"}
	for start := 0; start < len(g.kinds); start += columns {
		row := plotRow{label: "rank " + strconv.Itoa(start), cells: g.kinds[start:min(start+columns, len(g.kinds))], cursor: -1}
		if cursor >= start && cursor < start+columns {
			row.cursor = cursor - start
		}
		p.rows = append(p.rows, row)
	}
	return p
}

func (g *grid) plottedByLocal(columns, zoom, cursor int) plot {
	per := max(doubled(len(g.columns), columns)>>zoom, 1)
	p := plot{per: per, label: localLabel, legend: "mark = " + counted(per, "rank") + ", row = rank on its node"}
	at := g.cellOf(cursor, per)
	for local := range g.deep {
		cells := g.cells(per, local)
		from := window(len(cells), columns, at)
		end := min(len(cells), from+columns)
		row := plotRow{label: strconv.Itoa(local), cells: cells[from:end], cursor: -1, note: g.noteOf(local)}
		if cursor >= 0 && cursor < len(g.place) && at >= 0 && slices.Index(g.columns[g.place[cursor]].ranks, cursor) == local {
			row.cursor = at - from
		}
		if local == 0 {
			p.head = g.headOf(from, end, per)
		}
		p.rows = append(p.rows, row)
	}
	return p
}

// headOf names the first rank of some columns.
func (g *grid) headOf(from, end, per int) string {
	const each = 16
	var b strings.Builder
	for at := from; at < end; at += each {
		b.WriteString(pad(verdict.Number(g.columns[at*per].first()), each))
	}
	return strings.TrimRight(b.String(), " ")
}

// noteOf counts the worst kind of a row, where there are few of it.
func (g *grid) noteOf(local int) line {
	counts := [kinds]int{}
	for _, c := range g.columns {
		if local < len(c.ranks) && c.ranks[local] >= 0 {
			counts[g.kinds[c.ranks[local]]]++
		}
	}
	for _, k := range []kind{stuck, named, dead} {
		if counts[k] > 0 {
			return line{{looks[k], marks[k] + " " + verdict.Number(counts[k])}}
		}
	}
	return nil
}

// cells are the marks of all columns: the worst of each, of one row or (-1) of all.
func (g *grid) cells(per, local int) []kind {
	cells := make([]kind, (len(g.columns)+per-1)/per)
	for i, c := range g.columns {
		for row, rank := range c.ranks {
			if rank >= 0 && (local < 0 || row == local) {
				cells[i/per] = max(cells[i/per], g.kinds[rank])
			}
		}
	}
	return cells
}

// cellOf is the mark of a rank, -1 for none.
func (g *grid) cellOf(rank, per int) int {
	if rank < 0 || rank >= len(g.place) || g.kinds[rank] == nobody {
		return -1
	}
	return g.place[rank] / per
}

// window is where a part of a list begins that has the place of interest in its middle.
func window(all, part, at int) int {
	return max(min(at-part/2, all-part), 0)
}

// counted is "1 node" or "32 nodes".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return verdict.Number(n) + " " + what + "s"
}

// group is ranks that fare alike.
type group struct {
	kind  kind
	what  string
	ranks incidentview.Ranks
	first int
}

// groups are the ranks of a job by how they fare, the worst first, and of those alike the
// smallest: who differs stands above, all others below.
func groupsOf(j *history.RankJob, names map[int]Named) []group {
	var list []group
	for _, told := range j.Groups {
		left := map[kind][]int{}
		texts := map[kind]string{}
		for first, last := range (incidentview.Ranks{Ranges: told.Ranks}).Spans() {
			for rank := first; rank <= min(last, mostPlotted-1); rank++ {
				by, isNamed := names[rank]
				k := kindOf(told.State, by, isNamed)
				left[k] = append(left[k], rank)
				if isNamed && texts[k] == "" {
					texts[k] = by.Text
				}
			}
		}
		for k, ranks := range left {
			one := group{kind: k, what: told.What, ranks: incidentview.RanksOf(ranks), first: ranks[0]}
			if one.what == "" {
				one.what = texts[k]
			}
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.kind, a.kind), cmp.Compare(a.ranks.Count, b.ranks.Count), cmp.Compare(a.first, b.first))
	})
	return list
}

// gridded is what was made last of the ranks of a job; it is made anew when they change.
type gridded struct {
	groups *history.RankGroup
	named  *Named
	number int // of names

	grid  *grid
	names map[int]Named
	alike []group
}

// gridOf is the grid of a job as it stands, with the ranks that verdicts name.
func (m *Model) gridOf(j *history.RankJob) *gridded {
	var groups *history.RankGroup
	var first *Named
	if len(j.Groups) > 0 {
		groups = &j.Groups[0]
	}
	if len(m.picture.Named) > 0 {
		first = &m.picture.Named[0]
	}
	if c := &m.gridded; c.grid == nil || c.groups != groups || c.named != first || c.number != len(m.picture.Named) {
		names := m.picture.named(j)
		*c = gridded{groups, first, len(m.picture.Named), gridOf(j, names), names, groupsOf(j, names)}
	}
	return &m.gridded
}
