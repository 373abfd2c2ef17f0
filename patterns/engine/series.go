package engine

import (
	"cmp"
	"container/list"
	"hash/fnv"
	"io"
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// series is what one evidence remembers of one time series: enough to tell what
// a sample changes.
type series struct {
	w       *watch
	id      uint64 // of its attributes, never 0
	kind    kind
	points  []point  // sorted by time; what is settled leaves
	values  []string // fields of its newest sample
	source  string
	newest  int64
	stay    stay
	history []point // below_median: settled samples of the window
	group   *group

	element *list.Element
	wait    int64
	dead    bool
}

// point is one sample.
type point struct {
	Time   int64   `json:"t"`
	Start  int64   `json:"s,omitempty"`
	Number float64 `json:"n,omitempty"`
	Text   string  `json:"x,omitempty"`
	On     bool    `json:"o,omitempty"`
}

// seriesTable holds all series, with those not sampled for longest first.
type seriesTable struct {
	by     map[string]*series // watch and id → series
	order  lru[*series]
	groups map[string]*group // watch and group fields → group; removed with its last member
}

func newSeriesTable() seriesTable {
	return seriesTable{by: map[string]*series{}, groups: map[string]*group{}}
}

// sample gives one record to the operator of w that works on series.
func (e *Engine) sample(w *watch, r *record, values []string) {
	s := e.seriesOf(w, seriesID(w, r, values), values)
	p := point{Time: r.time, Start: r.start, Number: r.number}
	s.kind = r.kind
	if r.time >= s.newest {
		s.newest, s.values, s.source = r.time, values, r.source
	}
	switch w.Operator {
	case rule.Increase:
		e.increase(s, p)
	case rule.Change:
		p.Text = strconv.FormatFloat(p.Number, 'g', -1, 64)
		if w.value != nil {
			p.Text = w.value.read(e, r)
		}
		e.change(s, p)
	case rule.Stay:
		p.On = w.while.holds(e, r)
		e.stays(s, p)
	case rule.BelowMedian:
		e.median(s, p)
	}
}

// seriesID tells series apart: data points by all their attributes, log records
// by the thing that they are about.
func seriesID(w *watch, r *record, values []string) uint64 {
	if !w.OnMetrics() {
		return thingID(w, values)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, r.source)
	return (h.Sum64() + mapHash(r.resource) + mapHash(r.attributes)*31) | 1
}

// thingID is the series of log records that have these values: of one fault's
// fields and, within it, of one thing that the evidence follows.
func thingID(w *watch, values []string) uint64 {
	t, _ := tuple(values, w.series)
	h := fnv.New64a()
	_, _ = io.WriteString(h, t)
	return h.Sum64() | 1
}

// mapHash does not depend on the order of the attributes.
func mapHash(m pcommon.Map) uint64 {
	var sum uint64
	for k, v := range m.All() {
		h := fnv.New64a()
		_, _ = io.WriteString(h, k)
		_, _ = h.Write([]byte{0})
		_, _ = io.WriteString(h, valueString(v))
		sum += h.Sum64()
	}
	return sum
}

func seriesKey(w *watch, id uint64) string {
	return strconv.Itoa(w.state.no) + "/" + strconv.Itoa(w.index) + "/" + strconv.FormatUint(id, 16)
}

func (e *Engine) seriesOf(w *watch, id uint64, values []string) *series {
	key := seriesKey(w, id)
	if s := e.series.by[key]; s != nil {
		e.series.order.touch(s.element)
		return s
	}
	s := &series{w: w, id: id, values: values}
	e.keepSeries(key, s)
	if e.series.order.len() > e.opts.Series {
		e.stats.EvictedSeries++
		e.dropSeries(e.series.order.oldest())
	}
	return s
}

func (e *Engine) keepSeries(key string, s *series) {
	e.series.by[key] = s
	s.element = e.series.order.add(s)
	if s.w.Operator == rule.BelowMedian {
		e.joinGroup(s)
	}
}

func (e *Engine) dropSeries(s *series) {
	s.dead, s.wait = true, 0 // what waits for it is stale
	delete(e.series.by, seriesKey(s.w, s.id))
	e.series.order.remove(s.element)
	if s.group != nil {
		e.leaveGroup(s)
	}
}

// insert puts p among the points of s, unless one of that time is there.
func (e *Engine) insert(s *series, p point) (int, bool) {
	at, there := slices.BinarySearchFunc(s.points, p, func(a, b point) int { return cmp.Compare(a.Time, b.Time) })
	if there {
		return at, false
	}
	s.points = slices.Insert(s.points, at, p)
	return at, true
}

// trim drops the points that no sample can come before any more, but the last
// of them, and what is over the cap.
func (e *Engine) trim(s *series) {
	wm := e.watermark()
	drop := 0
	for drop+1 < len(s.points) && s.points[drop+1].Time < wm {
		drop++
	}
	if over := len(s.points) - e.opts.Points; over > drop {
		e.stats.EvictedPoints += uint64(over - drop)
		drop = over
	}
	s.points = slices.Delete(s.points, 0, drop)
}

// increase marks the rise of a counter between two samples. The first sample is
// only a start to count from.
func (e *Engine) increase(s *series, p point) {
	at, ok := e.insert(s, p)
	if !ok {
		return
	}
	for _, i := range []int{at, at + 1} {
		if i < len(s.points) && (i > 0 || s.kind == delta) {
			var before point
			if i > 0 {
				before = s.points[i-1]
			}
			e.mark(s, s.points[i].Time, s.points[i].Time, rise(s.kind, before, s.points[i]))
		}
	}
	e.trim(s)
}

// rise is by how much the counter went up from a to b. A counter that went down,
// or began anew, was reset: all of b came since.
func rise(kind kind, a, b point) float64 {
	switch {
	case kind == delta:
		return b.Number
	case kind == cumulative && (b.Number < a.Number || b.Start > a.Start && a.Start != 0 && b.Start > a.Time):
		return b.Number
	default:
		return b.Number - a.Number
	}
}

// change marks each transition.
func (e *Engine) change(s *series, p point) {
	at, ok := e.insert(s, p)
	if !ok {
		return
	}
	for _, i := range []int{at, at + 1} {
		if i > 0 && i < len(s.points) {
			count := 0.0
			if s.points[i].Text != s.points[i-1].Text {
				count = 1
			}
			e.mark(s, s.points[i].Time, s.points[i].Time, count)
		}
	}
	e.trim(s)
}

// mark puts what s shows at a time on the time line of its fault, corrects it,
// or with count 0 takes it back.
func (e *Engine) mark(s *series, at, last int64, count float64) {
	e.place(s.w, mark{Time: at, Last: last, Count: count, Values: s.values, Source: s.source, Series: s.id})
}

// due is for the tasks.
func (s *series) due() *int64 { return &s.wait }

func (s *series) fire(e *Engine) {
	switch {
	case s.dead:
	case s.group != nil:
		e.settleGroup(s.group)
	default:
		e.settleStay(s)
	}
}
