package probereceiver

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Times of looks at what was lost.
const (
	lossInterval = 3 * time.Second
	// downAgain is how often it is told that a probe still does not work.
	downAgain = 30 * time.Second
)

// eventLost is the event of each receiver that tells it.
const eventLost = "tracecore.lost"

// Why something is not known.
const (
	LostOverflow = "overflow" // there was no room for it, or nobody could read it
	LostAway     = "away"     // it came while no agent ran, and there was no room for it
	LostDown     = "down"     // the probe did not work
)

// Lost is what nobody will learn: records of a time, or a time in which a probe did not look.
type Lost struct {
	Things       string // what the probe tells of: "OOM kills"
	Since, Until time.Time
	Count        uint64 // records, 0: not known
	Why          string
}

// Head begins a record of it.
func (l *Lost) Head() record.Head {
	text := fmt.Sprintf("%s between %s and %s are not known (%s)", l.Things, l.Since.UTC().Format(time.RFC3339), l.Until.UTC().Format(time.RFC3339), l.Why)
	if l.Count > 0 {
		text = fmt.Sprintf("%d of the ", l.Count) + text
	}
	return record.Head{Trust: record.Proven, Time: l.Until, Observed: time.Now(), Severity: record.Warning, Text: text}
}

// Write writes it, with the events of the receiver, of which it may have been any.
func (l *Lost) Write(a record.LostAttributes, events map[string]bool) {
	a.TracecoreLostThings(l.Things)
	a.TracecoreLostWhy(l.Why)
	a.TracecoreLostSinceUnixNano(l.Since.UnixNano())
	if l.Count > 0 {
		a.TracecoreLostCount(int64(l.Count)) //nolint:gosec // far below
	}
	maybe := slices.DeleteFunc(slices.Sorted(maps.Keys(events)), func(name string) bool { return !events[name] || name == eventLost })
	record.Texts(a.TracecoreLostEvents, maybe)
}

// losses counts what a probe has lost so far.
type losses struct {
	things string
	at     time.Time   // of the last look
	before probe.Stats // at the last look
	breaks uint64      // how often the probe had broken while it was open, at the last look
	down   time.Time   // since when it is not open, as far as was told; zero while it is open
}

// look returns what was lost since the last look.
func (w *losses) look(now time.Time, total probe.Stats, up bool, breaks uint64, away []probe.Away) (lost []Lost) {
	since := w.at
	if since.IsZero() {
		since = now.Add(-lossInterval)
	}
	add := func(from, to time.Time, count uint64, why string) {
		lost = append(lost, Lost{Things: w.things, Since: from, Until: to, Count: count, Why: why})
	}
	for _, a := range away {
		if a.Missed() > 0 {
			add(a.Since, a.Until, a.Missed(), LostAway)
		}
	}
	if more := total.Dropped + total.Invalid - w.before.Dropped - w.before.Invalid; more > 0 {
		add(since, now, more, LostOverflow)
	}
	switch broke := breaks > w.breaks; {
	case !up && broke && w.down.IsZero():
		add(since, now, 0, LostDown)
		w.down = now
	case !up && !w.down.IsZero() && now.Sub(w.down) >= downAgain, up && !w.down.IsZero():
		add(w.down, now, 0, LostDown)
		if w.down = now; up {
			w.down = time.Time{}
		}
	case up && broke: // and was opened again
		add(since, now, 0, LostDown)
	}
	w.at, w.before, w.breaks = now, total, breaks
	return lost
}

// watchLosses tells of what is lost until the receiver stops.
func (l *Life[S]) watchLosses() {
	ticks, stop := l.parts.Ticks(lossInterval)
	defer stop()
	w := losses{things: l.parts.Missing}
	for {
		select {
		case <-l.ctx.Done():
			return
		case now := <-ticks:
			breaks := l.metrics.broken() // first: what breaks now is told at the next look
			total, _, up := l.metrics.now()
			if l.ctx.Err() != nil { // it is closed, for the receiver stops
				return
			}
			if l.parts.GaveUp != nil {
				total.Dropped += l.parts.GaveUp()
			}
			lost := w.look(now, total, up, breaks, l.metrics.tookOver())
			for i := range lost {
				l.parts.Lost(&lost[i])
			}
		}
	}
}
