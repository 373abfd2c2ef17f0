package incidentview

import (
	"slices"
	"time"
)

// axis puts event times on a line. Where nothing changes for most of the time it is cut: 90
// ms beside ten minutes would be less than a pixel.
type axis struct {
	spans []span // in order of time
}

// span is a part of the axis without a cut.
type span struct {
	from, to time.Time
	x0, x1   float64
}

const (
	mostCuts = 3
	cutWidth = 54
	leastPad = 500 * time.Millisecond
)

// newAxis covers moments between x0 and x1.
func newAxis(moments []time.Time, x0, x1 float64) axis {
	moments = slices.SortedFunc(slices.Values(moments), time.Time.Compare)
	if len(moments) == 0 {
		return axis{}
	}
	first, last := moments[0], moments[len(moments)-1]
	cuts := cutsOf(moments)
	pad := max(last.Sub(first)/25, leastPad)
	if len(cuts) > 0 {
		rest, least := last.Sub(first), last.Sub(first)
		for _, at := range cuts {
			gap := moments[at].Sub(moments[at-1])
			rest, least = rest-gap, min(least, gap)
		}
		pad = min(least/4, max(rest/8, leastPad))
	}
	a := axis{spans: []span{{from: first.Add(-pad)}}}
	for _, at := range cuts {
		a.spans[len(a.spans)-1].to = moments[at-1].Add(pad)
		a.spans = append(a.spans, span{from: moments[at].Add(-pad)})
	}
	a.spans[len(a.spans)-1].to = last.Add(pad)
	a.place(x0, x1)
	return a
}

// cutsOf returns the moments before which the axis is cut: where nothing changes for longer
// than a tenth of all, and than all the rest.
func cutsOf(moments []time.Time) []int {
	all := moments[len(moments)-1].Sub(moments[0])
	order := make([]int, 0, len(moments))
	for i := 1; i < len(moments); i++ {
		order = append(order, i)
	}
	gap := func(i int) time.Duration { return moments[i].Sub(moments[i-1]) }
	slices.SortStableFunc(order, func(a, b int) int { return int(gap(b)/time.Millisecond - gap(a)/time.Millisecond) })
	rest := all
	var cuts []int
	for _, i := range order {
		if len(cuts) == mostCuts || gap(i) <= all/10 || gap(i) < 8*leastPad || gap(i) <= rest/2 {
			break
		}
		rest -= gap(i)
		cuts = append(cuts, i)
	}
	slices.Sort(cuts)
	return cuts
}

// place gives each span its width: half of the room is shared equally, half by time.
func (a *axis) place(x0, x1 float64) {
	room := x1 - x0 - cutWidth*float64(len(a.spans)-1)
	var all time.Duration
	for _, s := range a.spans {
		all += s.to.Sub(s.from)
	}
	for i := range a.spans {
		s := &a.spans[i]
		width := room * (0.5/float64(len(a.spans)) + 0.5*float64(s.to.Sub(s.from))/float64(all))
		if len(a.spans) == 1 {
			width = room
		}
		s.x0, s.x1 = x0, x0+width
		x0 = s.x1 + cutWidth
	}
}

// x is where a moment stands; in a cut, at its middle.
func (a *axis) x(t time.Time) float64 {
	for i, s := range a.spans {
		switch {
		case t.Before(s.from):
			if i == 0 {
				return s.x0
			}
			return s.x0 - cutWidth/2
		case !t.After(s.to):
			return s.x0 + (s.x1-s.x0)*float64(t.Sub(s.from))/float64(max(1, s.to.Sub(s.from)))
		}
	}
	if len(a.spans) == 0 {
		return 0
	}
	return a.spans[len(a.spans)-1].x1
}

// tick is a mark of the axis.
type tick struct {
	x     float64
	label string
}

// tickSteps are the distances between ticks.
var tickSteps = []time.Duration{
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// ticks are as many as leave each label its room.
func (a *axis) ticks() []tick {
	const least = 84 // pixels from label to label
	var list []tick
	for _, s := range a.spans {
		took := s.to.Sub(s.from)
		most := max(1, time.Duration((s.x1-s.x0)/least))
		at := slices.IndexFunc(tickSteps, func(step time.Duration) bool { return took/step <= most })
		if at < 0 {
			at = len(tickSteps) - 1
		}
		step, before := tickSteps[at], len(list)
		for t := s.from.Truncate(step).Add(step); t.Before(s.to); t = t.Add(max(step, took/64)) {
			list = append(list, tick{a.x(t), tickLabel(t, step)})
		}
		if len(list) == before {
			list = append(list, tick{s.x0, tickLabel(s.from, tickSteps[0])})
		}
	}
	return list
}

func tickLabel(t time.Time, step time.Duration) string {
	switch {
	case step >= 24*time.Hour:
		return t.UTC().Format("01-02")
	case step >= time.Minute:
		return t.UTC().Format("15:04")
	case step >= time.Second:
		return t.UTC().Format("15:04:05")
	}
	return t.UTC().Format("15:04:05.00")
}
