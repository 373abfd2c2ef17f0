package timeline

// maxStep is how far one record may move event time while Advance was never
// called and records are the only clock.
const maxStep = int64(3600e9)

// MaxTime is the last moment that is believed: the year 2200. Sums of times and
// durations below it do not overflow.
const MaxTime = int64(7_258_118_400e9)

// Span is when a record happened, in unix nanoseconds.
type Span struct {
	Time int64 // its beginning
	Last int64 // its end: a folded record covers a while
	// Overdue is when it came, if later than the lateness allows; else 0. Nothing
	// waits for it any more, and yet it is news: its sender held it while the
	// engine's process was away. It may confirm a fault. What needs records in order
	// of time goes without it.
	Overdue int64
}

// Admit places a record in event time, or drops it as too late. A record without
// a believable time is taken as of now.
func (t *Timeline) Admit(s *Span) bool {
	s.Time = max(s.Time, s.Last-maxStep)
	if s.Time <= 0 || s.Time > MaxTime || s.Last > MaxTime {
		s.Time, s.Last = max(t.now, 1), max(t.now, 1)
		return true
	}
	if t.now == 0 {
		t.now = s.Last
	}
	limit, then := t.now+maxStep, t.now
	if t.clock != 0 {
		limit, then = t.clock+int64(t.opts.MaxAhead), t.clock
	}
	if s.Last > limit {
		t.Stats.Ahead++
		s.Time, s.Last = min(s.Time, then), then
	}
	switch {
	case s.Last >= t.watermark():
		t.moveTo(s.Last)
	case s.Last >= t.now-int64(t.opts.MaxDelay):
		s.Overdue = t.now
	default:
		t.Stats.Late++
		return false
	}
	return true
}

// Used counts a record that was overdue: it was of use, or it came too late.
func (t *Timeline) Used(s *Span, wanted bool) {
	switch {
	case s.Overdue == 0:
	case wanted:
		t.Stats.Overdue++
	default:
		t.Stats.Late++
	}
}
