package engine

import (
	"cmp"
	"slices"
	"strconv"
)

// group is the series of one evidence that are compared with each other.
type group struct {
	key     string
	members []*series // sorted by id
}

// joinGroup puts s into the group its fields name.
func (e *Engine) joinGroup(s *series) {
	t, ok := tuple(s.values, s.w.group)
	if !ok {
		return
	}
	key := strconv.Itoa(s.w.state.no) + "/" + strconv.Itoa(s.w.index) + "/" + t
	g := e.series.groups[key]
	if g == nil {
		g = &group{key: key}
		e.series.groups[key] = g
	}
	at, _ := slices.BinarySearchFunc(g.members, s, func(a, b *series) int { return cmp.Compare(a.id, b.id) })
	g.members = slices.Insert(g.members, at, s)
	s.group = g
}

func (e *Engine) leaveGroup(s *series) {
	g := s.group
	g.members = slices.DeleteFunc(g.members, func(o *series) bool { return o == s })
	if len(g.members) == 0 {
		delete(e.series.groups, g.key)
	}
}

// median takes one sample of a series that is compared with its group. All
// samples of one time are compared together, once no other can come.
func (e *Engine) median(s *series, p point) {
	if s.group == nil {
		e.stats.Unkeyed++
		return
	}
	e.wait(s, p)
}

// settleGroup compares, moment by moment, the members sampled then.
func (e *Engine) settleGroup(g *group) {
	for {
		at, ok := g.next(e.watermark())
		if !ok {
			break
		}
		sampled := g.absorb(e, at)
		limit, enough := g.limit(at)
		for _, s := range sampled {
			rate, known := s.rate(at)
			e.step(s, point{Time: at, On: enough && known && rate < limit})
			e.elapse(s, at)
		}
	}
	for _, s := range g.members {
		if len(s.points) > 0 {
			e.schedule(s, s.points[0].Time+int64(e.opts.Lateness)+1)
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
func (g *group) absorb(e *Engine, at int64) []*series {
	var sampled []*series
	for _, s := range g.members {
		if len(s.points) == 0 || s.points[0].Time != at {
			continue
		}
		s.history = append(s.history, s.points[0])
		s.points = s.points[1:]
		start := at - int64(s.w.Median.Over)
		s.history = slices.DeleteFunc(s.history, func(p point) bool { return p.Time < start })
		if len(s.history) > e.opts.Points { // every second one: the span stays
			e.stats.EvictedPoints++
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
	w := g.members[0].w
	if len(rates) < w.Median.MinMembers {
		return 0, false
	}
	slices.Sort(rates)
	middle := rates[len(rates)/2]
	if len(rates)%2 == 0 {
		middle = (middle + rates[len(rates)/2-1]) / 2
	}
	return middle * w.Median.Ratio, true
}

// rate is the increase per second of a counter over the window before at, or
// the mean of a gauge. It is unknown until samples span half of the window, and
// when the newest is older than that.
func (s *series) rate(at int64) (float64, bool) {
	n := len(s.history)
	if n < 2 {
		return 0, false
	}
	half := int64(s.w.Median.Over) / 2
	first, last := s.history[0].Time, s.history[n-1].Time
	if last-first < half || at-last > half {
		return 0, false
	}
	sum := 0.0
	for i := range s.history {
		switch {
		case s.kind == gauge:
			sum += s.history[i].Number
		case i > 0:
			sum += max(0, rise(s.kind, s.history[i-1], s.history[i]))
		}
	}
	if s.kind == gauge {
		return sum / float64(n), true
	}
	return sum / (float64(last-first) / 1e9), true
}
