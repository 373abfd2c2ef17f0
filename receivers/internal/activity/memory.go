package activity

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Memory is what a Rest has learned, as it is kept for a process that goes on.
type Memory struct {
	AtWork int    `json:"at_work"` // looks at which it was, as far as these count
	First  int64  `json:"first_ms,omitempty"`
	Faulty bool   `json:"faulty,omitempty"`
	Pauses []Kept `json:"pauses,omitempty"`
}

// Kept is a healthy pause, as it is kept. Times are of the wall clock, which goes on between two starts.
type Kept struct {
	End    int64                `json:"end_ms"`
	Length int64                `json:"ms"`
	How    socketstall.Activity `json:"how,omitempty"`
}

// longestKept is longer than any pause that is learned.
const longestKept = 24 * time.Hour

// Keep makes a pause one that is kept.
func Keep(end time.Time, length time.Duration, how socketstall.Activity) Kept {
	return Kept{end.UnixMilli(), length.Milliseconds(), how}
}

// Pause is when the pause ended, and its length. What is damaged, or ends later than now, is none.
func (k Kept) Pause(now time.Time) (end time.Time, length time.Duration, is bool) {
	end = time.UnixMilli(k.End)
	is = k.Length > 0 && k.Length <= longestKept.Milliseconds() && !end.After(now) && now.Sub(end) <= longestKept
	return end, time.Duration(k.Length) * time.Millisecond, is
}

// Later are the pauses after an absence. Nobody watched in it, so that no pause grows older.
func Later(pauses []Kept, absence time.Duration) []Kept {
	pauses = slices.Clone(pauses)
	for i := range pauses {
		pauses[i].End += absence.Milliseconds()
	}
	return pauses
}

// Outdated reports whether nobody watched for longer than a pause is remembered. Other pauses may be usual
// by now: that they are known has to be learned again.
func Outdated(absence time.Duration) bool { return absence.Abs() > memory }

// After is the memory after an absence.
func (m Memory) After(absence time.Duration) Memory {
	m.Pauses = Later(m.Pauses, absence)
	switch {
	case Outdated(absence):
		m.AtWork, m.First = 0, 0
	case m.First > 0:
		m.First += absence.Milliseconds()
	}
	return m
}

// Memory is what it has learned.
func (r *Rest) Memory() Memory {
	m := Memory{AtWork: min(r.learned, r.enough()), Faulty: r.faulty}
	if !r.first.IsZero() {
		m.First = r.first.UnixMilli()
	}
	for _, p := range r.pauses {
		m.Pauses = append(m.Pauses, Keep(p.end, p.length, p.how))
	}
	return m
}

// Recall begins with what was learned before.
func (r *Rest) Recall(m *Memory, now time.Time) {
	if first := time.UnixMilli(m.First); m.AtWork > 0 && m.First > 0 && !first.After(now) {
		r.learned, r.first = min(m.AtWork, r.enough()), first
	}
	r.faulty = m.Faulty
	for _, kept := range m.Pauses[:min(len(m.Pauses), mostPauses)] {
		if end, length, is := kept.Pause(now); is {
			r.pauses = append(r.pauses, pause{end, length, kept.How})
		}
	}
}

// enough is how many looks at which it was at work make its pauses known.
func (r *Rest) enough() int { return cmp.Or(r.Enough, learning) }
