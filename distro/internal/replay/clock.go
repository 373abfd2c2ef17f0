package replay

import "time"

// arrival is when a batch came: when it was observed, as far as that can be
// believed, so that no record that comes beside it in event time is late.
func (b *batch) arrival(lateness time.Duration) time.Time {
	return time.Unix(0, max(b.last, min(b.observed, b.first+int64(lateness))))
}

// tick is how often processors look at the clock.
const tick = time.Second

// mostTicks bounds the ticks of one gap.
const mostTicks = 100_000

// advance moves the clock second by second, as it moves in a pipeline.
func (r *run) advance(to time.Time) {
	to = to.Truncate(tick)
	if !r.started {
		r.started, r.now = true, to
		r.engine.Advance(to)
		return
	}
	step := max(tick, to.Sub(r.now)/mostTicks)
	for r.now.Before(to) {
		r.now = r.now.Add(min(step, to.Sub(r.now)))
		r.tick()
	}
}

// tick joins the dumps of jobs that have been quiet for the window, and lets the
// patterns decide what is due.
func (r *run) tick() {
	joined := r.join.Advance(r.now.UnixNano())
	r.engine.Logs(joined)
	if r.engine.Advance(r.now) || joined.LogRecordCount() > 0 {
		r.ledger.add(r.engine.Verdicts())
	}
}

// finish joins the dumps that waited for others of their job and decides what
// waited for records that might come late, and nothing that lies beyond the end
// of the recording.
func (r *run) finish() {
	if r.started {
		for r.join.Algorithm.Due() != 0 {
			r.advance(r.now.Add(tick))
		}
		r.advance(r.now.Add(r.Lateness + tick))
		r.ledger.add(r.engine.Verdicts())
	}
	r.result.Verdicts = r.ledger.count
}
