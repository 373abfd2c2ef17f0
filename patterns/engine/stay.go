package engine

import "github.com/tracecoreai/tracecore/patterns/rule"

// stay is how long a condition of a series has held, as far as is settled.
type stay struct {
	Since  int64 `json:"since,omitempty"` // 0: it does not hold
	Newest int64 `json:"newest,omitempty"`
	Marked bool  `json:"marked,omitempty"`
}

// stays takes one sample of a condition. Samples are settled in order of time
// once none can come before them.
func (e *Engine) stays(s *series, p point) {
	e.wait(s, p)
}

// wait keeps p until no sample before it can come any more.
func (e *Engine) wait(s *series, p point) {
	at, ok := e.insert(s, p)
	if !ok { // two samples of one moment disagree: in either order it does not hold
		s.points[at].On = s.points[at].On && p.On
		return
	}
	if over := len(s.points) - e.opts.Points; over > 0 {
		e.stats.EvictedPoints += uint64(over)
		s.points = s.points[over:]
	}
	e.schedule(s, p.Time+int64(e.opts.Lateness)+1)
}

func (e *Engine) settleStay(s *series) {
	wm := e.watermark()
	done := 0
	for done < len(s.points) && s.points[done].Time < wm {
		e.step(s, s.points[done])
		done++
	}
	s.points = s.points[done:]
	e.elapse(s, wm)
	e.scheduleStay(s)
}

// scheduleStay has s looked at when its next sample is settled, or its condition
// will have held long enough. Counters and transitions never wait.
func (e *Engine) scheduleStay(s *series) {
	if s.w.Operator != rule.Stay && s.w.Operator != rule.BelowMedian {
		return
	}
	if len(s.points) > 0 {
		e.schedule(s, s.points[0].Time+int64(e.opts.Lateness)+1)
	}
	if reached := s.stay.Since + int64(s.w.Stays.For) + int64(e.opts.Lateness) + 1; s.stay.Since != 0 && !s.stay.Marked && reached > e.now {
		e.schedule(s, reached)
	}
}

// step settles one sample.
func (e *Engine) step(s *series, p point) {
	e.elapse(s, p.Time)
	gap := int64(s.w.Stays.MaxGap)
	if !p.On || gap > 0 && s.stay.Since != 0 && p.Time-s.stay.Newest > gap {
		s.stay = stay{}
	}
	if p.On {
		if s.stay.Since == 0 {
			s.stay.Since = p.Time
		}
		s.stay.Newest = p.Time
	}
}

// elapse marks the condition when it has held long enough by the moment until,
// and then how long it went on.
func (e *Engine) elapse(s *series, until int64) {
	st := &s.stay
	if st.Since == 0 {
		return
	}
	if gap := int64(s.w.Stays.MaxGap); gap > 0 {
		until = min(until, st.Newest+gap)
	}
	held := until - st.Since
	if held < int64(s.w.Stays.For) {
		return
	}
	last := max(st.Newest, st.Since+int64(s.w.Stays.For))
	st.Marked = true
	e.mark(s, st.Since, last, 1)
}
