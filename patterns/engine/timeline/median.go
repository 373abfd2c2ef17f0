package timeline

import (
	"cmp"
	"slices"
)

// group is the series of one operator that are compared with each other.
type group struct {
	key     groupKey
	table   *Table
	op      *Operator
	members []*Series // sorted by id
}

type groupKey struct {
	op     *Operator
	values string
}

// join puts s into the group of that name.
func (t *Table) join(s *Series, name string) {
	key := groupKey{s.op, name}
	g := t.groups[key]
	if g == nil {
		g = &group{key: key, table: t, op: s.op}
		t.groups[key] = g
	}
	at, _ := slices.BinarySearchFunc(g.members, s, func(a, b *Series) int { return cmp.Compare(a.ID, b.ID) })
	g.members = slices.Insert(g.members, at, s)
	s.group = g
}

func (t *Table) leave(s *Series) {
	g := s.group
	g.members = slices.DeleteFunc(g.members, func(o *Series) bool { return o == s })
	if len(g.members) == 0 {
		delete(t.groups, g.key)
	}
}

// settle compares, moment by moment, the members sampled then. All samples of one
// time are compared together, once no other can come.
func (g *group) settle() {
	for {
		at, ok := g.next(g.table.time.watermark())
		if !ok {
			break
		}
		sampled := g.absorb(at)
		limit, enough := g.limit(at)
		for _, s := range sampled {
			rate, known := s.rate(at)
			s.step(point{Time: at, On: enough && known && rate < limit})
			s.elapse(at)
		}
	}
	for _, s := range g.members {
		if len(s.points) > 0 {
			s.call(g.table.time.Settled(s.points[0].Time))
		}
	}
}

// next returns the earliest time of a sample that is settled by watermark.
func (g *group) next(watermark int64) (int64, bool) {
	at, ok := watermark, false
	for _, s := range g.members {
		if len(s.points) > 0 && s.points[0].Time < at {
			at, ok = s.points[0].Time, true
		}
	}
	return at, ok
}

// absorb moves the samples of that time into the histories.
func (g *group) absorb(at int64) []*Series {
	var sampled []*Series
	for _, s := range g.members {
		if len(s.points) == 0 || s.points[0].Time != at {
			continue
		}
		s.history = append(s.history, s.points[0])
		s.points = s.points[1:]
		start := at - int64(g.op.Median.Over)
		s.history = slices.DeleteFunc(s.history, func(p point) bool { return p.Time < start })
		if len(s.history) > g.table.time.opts.Points { // every second one: the span stays
			g.table.time.Stats.EvictedPoints++
			s.history = thin(s.history)
		}
		sampled = append(sampled, s)
	}
	return sampled
}

// thin keeps the first, the last and every second point between.
func thin(points []point) []point {
	kept := points[:0]
	for i, p := range points {
		if i%2 == 0 || i == len(points)-1 {
			kept = append(kept, p)
		}
	}
	return kept
}

// limit is the rate below which a member falls behind: the ratio times the
// median. It needs enough members with a rate.
func (g *group) limit(at int64) (float64, bool) {
	var rates []float64
	for _, s := range g.members {
		if rate, ok := s.rate(at); ok {
			rates = append(rates, rate)
		}
	}
	if len(rates) < g.op.Median.MinMembers {
		return 0, false
	}
	slices.Sort(rates)
	middle := rates[len(rates)/2]
	if len(rates)%2 == 0 {
		middle = (middle + rates[len(rates)/2-1]) / 2
	}
	return middle * g.op.Median.Ratio, true
}

// rate is the increase per second of a counter over the window before at, or
// the mean of a gauge. It is unknown until samples span half of the window, and
// when the newest is older than that.
func (s *Series) rate(at int64) (float64, bool) {
	n := len(s.history)
	if n < 2 {
		return 0, false
	}
	half := int64(s.op.Median.Over) / 2
	first, last := s.history[0].Time, s.history[n-1].Time
	if last-first < half || at-last > half {
		return 0, false
	}
	sum := 0.0
	for i := range s.history {
		switch {
		case s.kind == Gauge:
			sum += s.history[i].Number
		case i > 0:
			sum += max(0, rise(s.kind, s.history[i-1], s.history[i]))
		}
	}
	if s.kind == Gauge {
		return sum / float64(n), true
	}
	return sum / (float64(last-first) / 1e9), true
}
