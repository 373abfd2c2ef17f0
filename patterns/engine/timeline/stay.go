package timeline

import "github.com/tracecoreai/tracecore/patterns/rule"

// stay is how long a condition of a series has held, as far as is settled.
type stay struct {
	Since  int64 `json:"since,omitempty"` // 0: it does not hold
	Newest int64 `json:"newest,omitempty"`
	Marked bool  `json:"marked,omitempty"`
	Late   bool  `json:"late,omitempty"` // its first sample was read late
}

// keep holds p until no sample before it can come any more.
func (s *Series) keep(p point) {
	at, ok := s.insert(p)
	if !ok { // two samples of one moment disagree: in either order it does not hold
		s.points[at].On = s.points[at].On && p.On
		return
	}
	if over := len(s.points) - s.table.time.opts.Points; over > 0 {
		s.table.time.Stats.EvictedPoints += uint64(over)
		s.points = s.points[over:]
	}
	s.call(s.table.time.Settled(p.Time))
}

func (s *Series) call(at int64) { s.table.time.Call(s, at) }

// settle takes the samples that none can precede any more, in order of time.
func (s *Series) settle() {
	watermark, done := s.table.time.watermark(), 0
	for done < len(s.points) && s.points[done].Time < watermark {
		s.step(s.points[done])
		done++
	}
	s.points = s.points[done:]
	s.elapse(watermark)
	s.callAgain()
}

// callAgain waits until the next sample is settled, or the condition has held long
// enough. Counters and transitions never wait.
func (s *Series) callAgain() {
	if s.op.Does != rule.Stay && s.op.Does != rule.BelowMedian {
		return
	}
	if len(s.points) > 0 {
		s.call(s.table.time.Settled(s.points[0].Time))
	}
	if reached := s.table.time.Settled(s.stay.Since + int64(s.op.Stays.For)); s.stay.Since != 0 && !s.stay.Marked && reached > s.table.time.now {
		s.call(reached)
	}
}

// step settles one sample.
func (s *Series) step(p point) {
	s.elapse(p.Time)
	gap := int64(s.op.Stays.MaxGap)
	if !p.On || gap > 0 && s.stay.Since != 0 && p.Time-s.stay.Newest > gap {
		s.stay = stay{}
	}
	if p.On {
		if s.stay.Since == 0 {
			s.stay.Since, s.stay.Late = p.Time, p.Late
		}
		s.stay.Newest = p.Time
	}
}

// elapse marks the condition when it has held long enough by the moment until,
// and then how long it went on.
func (s *Series) elapse(until int64) {
	st := &s.stay
	if st.Since == 0 {
		return
	}
	if gap := int64(s.op.Stays.MaxGap); gap > 0 {
		until = min(until, st.Newest+gap)
	}
	held := until - st.Since
	if held < int64(s.op.Stays.For) {
		return
	}
	last := max(st.Newest, st.Since+int64(s.op.Stays.For))
	st.Marked = true
	s.op.Mark(s, Shown{Time: st.Since, Last: last, Count: 1, Late: st.Late})
}
