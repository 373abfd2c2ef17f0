package story

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// repeated are the attributes that name what a receiver tells of again every ten seconds while it lasts.
var repeated = []string{"nccl.socket.stall.id", "fuse.stall.id"}

// lasts are what is told again each ten seconds after the end of the story, for so long.
func (s told) lasts(end time.Time, long time.Duration) (more []arrival) {
	last, over := map[string]*arrival{}, map[string]bool{}
	arrivals := byArrival(s.Input.arrivals())
	of := func(a *arrival) string {
		return word(cmp.Or(a.record.Resource["host.name"], s.Input.Resource["host.name"])) + word(a.record.Attributes["process.pid"])
	}
	for i := range arrivals {
		if a := &arrivals[i]; a.record.Log == "process.exit" {
			over[of(a)] = true
		}
		for _, id := range repeated {
			if v, ok := arrivals[i].record.Attributes[id]; ok {
				last[fmt.Sprint(id, v, arrivals[i].n)] = &arrivals[i]
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		a := last[key]
		if strings.HasSuffix(a.record.Log, ".end") || over[of(a)] || arrivals[len(arrivals)-1].at.Sub(a.at) > 20*time.Second {
			continue // its agent tells of it no more
		}
		for passed := 10 * time.Second; a.at.Add(passed).Before(end.Add(long)); passed += 10 * time.Second {
			r := *a.record
			r.Attributes = maps.Clone(r.Attributes)
			for name, v := range r.Attributes {
				if v, ok := v.(int); ok && strings.HasSuffix(name, "age_ns") {
					r.Attributes[name] = v + int(passed)
				}
			}
			more = append(more, arrival{record: &r, n: a.n, at: a.at.Add(passed), time: a.time.Add(passed)})
		}
	}
	return more
}

// What a stall was told to come of, it comes of for as long as it lasts.
func TestACauseStaysForAsLongAsItsEffectLasts(t *testing.T) {
	compared := 0
	each(t, func(t *testing.T, s told) {
		end := s.end(t)
		more := s.lasts(end, 12*time.Minute)
		if s.Input.Kind == Flood || len(more) == 0 {
			return
		}
		of := func(v verdict.Verdict) string { //nolint:gocritic // verdicts are passed by value everywhere
			return fmt.Sprint(v.Pattern, " ", v.Role, " ", v.Culprit["host"], " ", v.Culprit["rank"], " ", v.Culprit["held"])
		}
		arrivals := byArrival(s.Input.arrivals())
		told := s.tell(t, arrivals, clock(arrivals, end.Add(time.Nanosecond)), of)
		compared += len(told)
		at := clock(arrivals, end)
		for i := range more {
			at = append(at, more[i].at)
		}
		slices.SortFunc(at, time.Time.Compare)
		require.Subset(t, s.tell(t, byArrival(slices.Concat(arrivals, more)), append(slices.Compact(at), end.Add(12*time.Minute)), of), told)
	})
	require.Greater(t, compared, 100, "the test sees something")
}
