package probereceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// moment is one look: how much was dropped and refused by then, whether the probe is open, and how
// many that were open have broken.
type moment struct {
	dropped, invalid uint64
	down             bool
	breaks           uint64
	away             []probe.Away
}

// TestWhatAProbeLost: each look tells what is new, with the time in which it was lost.
func TestWhatAProbeLost(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(look int) time.Time { return start.Add(time.Duration(look) * lossInterval) }
	lost := func(from, to int, count uint64, why string) Lost {
		return Lost{Things: "kills", Since: at(from), Until: at(to), Count: count, Why: why}
	}
	night := probe.Away{Since: start.Add(-time.Hour), Until: start.Add(-time.Minute), Records: 5, Lost: 2, Foreign: 1}
	for name, tc := range map[string]struct {
		looks []moment
		want  []Lost
	}{
		"nothing":                                {looks: []moment{{}, {}, {}}},
		"drops":                                  {[]moment{{}, {dropped: 3}, {dropped: 3}, {dropped: 10}}, []Lost{lost(0, 1, 3, LostOverflow), lost(2, 3, 7, LostOverflow)}},
		"what cannot be read":                    {[]moment{{}, {dropped: 1, invalid: 2}}, []Lost{lost(0, 1, 3, LostOverflow)}},
		"what was counted before the first look": {[]moment{{dropped: 9}, {dropped: 9}}, []Lost{lost(-1, 0, 9, LostOverflow)}},
		"no agent ran":                           {[]moment{{away: []probe.Away{night}}, {}}, []Lost{{"kills", night.Since, night.Until, 3, LostAway}}},
		"no agent ran, all was read":             {looks: []moment{{away: []probe.Away{{Since: night.Since, Until: night.Until, Records: 5}}}}},
		"it breaks and is opened":                {[]moment{{}, {down: true, breaks: 1}, {breaks: 1}, {breaks: 1}}, []Lost{lost(0, 1, 0, LostDown), lost(1, 2, 0, LostDown)}},
		"between two looks":                      {[]moment{{}, {breaks: 1}, {breaks: 1}}, []Lost{lost(0, 1, 0, LostDown)}},
		"it never worked":                        {looks: []moment{{down: true}, {down: true}, {down: true}}},
		"it works for the first time":            {looks: []moment{{down: true}, {}, {}}},
		"before the first look":                  {[]moment{{down: true, breaks: 1}, {breaks: 1}}, []Lost{lost(-1, 0, 0, LostDown), lost(0, 1, 0, LostDown)}},
		"before the first look, and is opened":   {[]moment{{breaks: 1}, {breaks: 1}}, []Lost{lost(-1, 0, 0, LostDown)}},
		"it breaks twice":                        {[]moment{{}, {breaks: 1}, {down: true, breaks: 2}, {breaks: 2}}, []Lost{lost(0, 1, 0, LostDown), lost(1, 2, 0, LostDown), lost(2, 3, 0, LostDown)}},
		"it breaks and drops":                    {[]moment{{}, {dropped: 4, breaks: 1}}, []Lost{lost(0, 1, 4, LostOverflow), lost(0, 1, 0, LostDown)}},
		"it stays down": {
			append([]moment{{}}, func() (all []moment) {
				for range 22 {
					all = append(all, moment{down: true, breaks: 1})
				}
				return all
			}()...),
			[]Lost{lost(0, 1, 0, LostDown), lost(1, 11, 0, LostDown), lost(11, 21, 0, LostDown)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := losses{things: "kills"}
			var all []Lost
			for i, m := range tc.looks {
				all = append(all, w.look(at(i), probe.Stats{Dropped: m.dropped, Invalid: m.invalid}, !m.down, m.breaks, m.away)...)
			}
			require.Equal(t, tc.want, all)
		})
	}
}
