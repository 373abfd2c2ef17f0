package timeline

import (
	"cmp"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Operator says what samples of a series show, for one piece of evidence.
type Operator struct {
	Does   rule.Operator
	Stays  rule.Stays
	Median rule.Median
	Owner  func(values []string) []string // whose room a series takes
	// Mark takes what a series shows. A second call for one time corrects the first, and a
	// count of 0 takes it back.
	Mark func(s *Series, shown Shown)
}

// Shown is what samples of a series show.
type Shown struct {
	Time, Last int64
	After      int64 // the sample before it, where it happened between two: a rise, a change
	Count      float64
	Late       bool // it was read late
}

// Kind says how the numbers of a series add up.
type Kind uint8

// Gauge is a level, Cumulative a total since a start, Delta what came since the
// sample before.
const (
	Gauge Kind = iota
	Cumulative
	Delta
)

// Series is what one operator remembers of one series: enough to tell what a
// sample changes.
type Series struct {
	ID     uint64   // of what is followed, never 0
	Values []string // fields of its newest sample
	Source string   // where that came from
	Trust  verdict.Trust

	table   *Table
	op      *Operator
	kind    Kind
	points  []point // sorted by time; what is settled leaves
	newest  int64
	stay    stay
	history []point // below_median: settled samples of the window
	group   *group

	element *fairlru.Element[*Series]
	wait    int64
	dead    bool
}

// Sample is one record as its series sees it.
type Sample struct {
	Time   int64
	Start  int64 // of a counter
	Number float64
	Text   string // what changes compares
	On     bool   // whether the condition that stays holds
	Late   bool   // it was read after a time in which nobody looked
	Kind   Kind
	Values []string
	Source string
	Trust  verdict.Trust // of all samples of the series
	Group  string        // below_median: series with equal groups are compared
}

// point is what is kept of one sample. Its names in snapshots are short: there
// are many.
type point struct {
	Time   int64   `json:"t"`
	Start  int64   `json:"s,omitempty"`
	Number float64 `json:"n,omitempty"`
	Text   string  `json:"x,omitempty"`
	On     bool    `json:"o,omitempty"`
	Late   bool    `json:"y,omitempty"`
}

// Table holds all series.
type Table struct {
	time   *Timeline
	series map[seriesKey]*Series
	order  fairlru.List[*Series]
	groups map[groupKey]*group // removed with its last member
}

type seriesKey struct {
	op *Operator
	id uint64
}

// NewTable makes a table of series on a time line.
func NewTable(t *Timeline) *Table {
	return &Table{time: t, series: map[seriesKey]*Series{}, groups: map[groupKey]*group{}, order: NewOrder[*Series]()}
}

// Len is how many series there are.
func (t *Table) Len() int { return t.order.Len() }

// Sample gives one record to the series of that id.
func (t *Table) Sample(op *Operator, id uint64, one *Sample) {
	s := t.of(op, id, one)
	s.kind = one.Kind
	if one.Time >= s.newest {
		s.newest, s.Values, s.Source = one.Time, one.Values, one.Source
	}
	p := point{Time: one.Time, Start: one.Start, Number: one.Number, Text: one.Text, On: one.On, Late: one.Late}
	switch op.Does {
	case rule.Increase:
		s.increase(p)
	case rule.Change:
		s.change(p)
	default:
		s.keep(p)
	}
}

func (t *Table) of(op *Operator, id uint64, one *Sample) *Series {
	if s := t.series[seriesKey{op, id}]; s != nil {
		t.order.Touch(s.element, fairlru.Some)
		return s
	}
	s := &Series{table: t, op: op, ID: id, Values: one.Values, Trust: one.Trust}
	t.add(s, one.Group)
	if t.Len() > t.time.opts.Series {
		t.time.Stats.EvictedSeries++
		victim, _ := t.order.Victim()
		t.drop(victim.Value)
	}
	return s
}

func (t *Table) add(s *Series, group string) {
	t.series[seriesKey{s.op, s.ID}] = s
	s.element = t.order.Add(s, fairlru.Some, Path(s.Trust, s.op.Owner(s.Values))...)
	if s.op.Does == rule.BelowMedian {
		t.join(s, group)
	}
}

func (t *Table) drop(s *Series) {
	s.dead, s.wait = true, 0 // what waits for it is stale
	delete(t.series, seriesKey{s.op, s.ID})
	t.order.Remove(s.element)
	if s.group != nil {
		t.leave(s)
	}
}

// insert puts p among the points of s, unless one of that time is there.
func (s *Series) insert(p point) (int, bool) {
	at, there := slices.BinarySearchFunc(s.points, p, func(a, b point) int { return cmp.Compare(a.Time, b.Time) })
	if !there {
		s.points = slices.Insert(s.points, at, p)
	}
	return at, !there
}

// trim drops the points that no sample can come before any more, but the last
// of them, and what is over the cap.
func (s *Series) trim() {
	watermark, drop := s.table.time.watermark(), 0
	for drop+1 < len(s.points) && s.points[drop+1].Time < watermark {
		drop++
	}
	if over := len(s.points) - s.table.time.opts.Points; over > drop {
		s.table.time.Stats.EvictedPoints += uint64(over - drop)
		drop = over
	}
	s.points = slices.Delete(s.points, 0, drop)
}

// increase marks the rise of a counter between two samples. The first sample is
// only a start to count from.
func (s *Series) increase(p point) {
	at, ok := s.insert(p)
	if !ok {
		return
	}
	for _, i := range []int{at, at + 1} {
		if i < len(s.points) && (i > 0 || s.kind == Delta) {
			var before point
			if i > 0 {
				before = s.points[i-1]
			}
			s.mark(before, s.points[i], rise(s.kind, before, s.points[i]))
		}
	}
	s.trim()
}

// rise is by how much the counter went up from a to b. A counter that went down,
// or began anew, was reset: all of b came since.
func rise(kind Kind, a, b point) float64 {
	switch {
	case kind == Delta:
		return b.Number
	case anew(kind, a, b):
		return b.Number
	default:
		return b.Number - a.Number
	}
}

// anew reports whether a counter was reset between two samples.
func anew(kind Kind, a, b point) bool {
	return kind == Cumulative && (b.Number < a.Number || b.Start > a.Start && a.Start != 0 && b.Start > a.Time)
}

// change marks each transition.
func (s *Series) change(p point) {
	at, ok := s.insert(p)
	if !ok {
		return
	}
	for _, i := range []int{at, at + 1} {
		if i > 0 && i < len(s.points) {
			count := 0.0
			if s.points[i].Text != s.points[i-1].Text {
				count = 1
			}
			s.mark(s.points[i-1], s.points[i], count)
		}
	}
	s.trim()
}

// mark tells what happened between two samples.
func (s *Series) mark(before, p point, count float64) {
	after := before.Time
	if s.kind == Delta && p.Start != 0 || anew(s.kind, before, p) {
		after = p.Start
	}
	s.op.Mark(s, Shown{Time: p.Time, Last: p.Time, After: after, Count: count, Late: p.Late})
}

// Wait is for the time line.
func (s *Series) Wait() *int64 { return &s.wait }

// Fire is called when samples of s are settled, or its condition held long enough.
func (s *Series) Fire() {
	switch {
	case s.dead:
	case s.group != nil:
		s.group.settle()
	default:
		s.settle()
	}
}
