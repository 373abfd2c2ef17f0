package story

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const elsewhere = "elsewhere-"

var (
	// names are attributes that name a machine, a job or what one of them has. Ports of one name hang on
	// one leaf switch, mounts of one source on one storage.
	names = regexp.MustCompile(`^(host\.(name|id|boot\.id)|k8s\.(node\.name|pod\.name|pod\.uid|event\.uid|object\.name|workload)|container\.id|gpu\.uuid|hw\.(id|serial_number)` +
		`|gen_ai\.training\.(job_id|run_id|job_domain|rendezvous)|nccl\.call\.(comm|peer_comms)|nccl\.collective\.(run|id|stop|hosts)|network\.rdma\.device|fuse\.mount\.source|kernelevents\.(fault_id|nvlink\.domain))$`)
	private = regexp.MustCompile(`\b10\.(\d+\.\d+\.\d+)\b`)
)

// elsewhereAndLater is the story on other machines, of other jobs, and later.
func (s told) elsewhereAndLater(later time.Duration) []arrival {
	all := s.Input.arrivals()
	for i := range all {
		r := *all[i].record
		if r.Resource == nil {
			r.Resource = s.Input.Resource
		}
		r.Resource, r.Attributes = renamed(r.Resource, later), renamed(r.Attributes, later)
		all[i].record, all[i].at, all[i].time = &r, all[i].at.Add(later), all[i].time.Add(later)
	}
	return all
}

// renamed is not nil, also where there is nothing to rename: else the other story lends its own.
func renamed(attributes map[string]any, later time.Duration) map[string]any {
	to := make(map[string]any, len(attributes))
	for name, value := range attributes {
		to[name] = renamedValue(name, value, later)
	}
	return to
}

func renamedValue(name string, value any, later time.Duration) any {
	switch v := value.(type) {
	case string:
		v = private.ReplaceAllString(v, "110.$1")
		if v != "" && names.MatchString(name) {
			v = elsewhere + v
		}
		return v
	case []any:
		list := slices.Clone(v)
		for i := range list {
			list[i] = renamedValue(name, list[i], later)
		}
		return list
	case int:
		if strings.HasSuffix(name, "unix_nano") && v > 0 {
			return v + int(later)
		}
	}
	return value
}

// named is what a verdict says, without the names of another place.
func named(v verdict.Verdict) string { //nolint:gocritic // verdicts are passed by value everywhere
	says := fmt.Sprint(v.Pattern, " ", v.Role, " ", v.Confidence, " ", v.Status, " ", v.Onset.Sub(start), " ", v.Culprit["host"], " ", v.Headline)
	return strings.ReplaceAll(strings.ReplaceAll(says, elsewhere, ""), "110.", "10.")
}

// counted is named with the evidence.
func counted(v verdict.Verdict) string { //nolint:gocritic // verdicts are passed by value everywhere
	says := named(v)
	for _, e := range v.Evidence {
		says += fmt.Sprint("; ", e.Name, " ", e.Count, " ", e.Shows)
	}
	return says
}

// tell returns what the newest revisions say after arrivals, at those times of the clock.
func (s told) tell(t *testing.T, arrivals []arrival, at []time.Time, of func(verdict.Verdict) string) (says []string) {
	t.Helper()
	e := s.engine(t)
	defer s.done(e)
	newest := map[string]verdict.Verdict{}
	for _, at := range at {
		e.Advance(at)
		for len(arrivals) > 0 && !arrivals[0].at.After(at) {
			require.NoError(t, s.feed(e, &arrivals[0]))
			arrivals = arrivals[1:]
		}
		for _, v := range e.Verdicts() {
			newest[v.ID] = v
		}
	}
	require.Empty(t, arrivals)
	for _, v := range newest {
		says = append(says, of(v))
	}
	slices.Sort(says)
	return says
}

// clock is each second from the first arrival to the end, and the moments of arrivals.
func clock(arrivals []arrival, end time.Time) (at []time.Time) {
	first := start
	for i := range arrivals {
		at = append(at, arrivals[i].at)
		if arrivals[i].at.Before(first) {
			first = arrivals[i].at
		}
	}
	for ; first.Before(end); first = first.Add(time.Second) {
		at = append(at, first)
	}
	slices.SortFunc(at, time.Time.Compare)
	return slices.Compact(at)
}

func byArrival(arrivals []arrival) []arrival {
	return slices.SortedStableFunc(slices.Values(arrivals), func(a, b arrival) int { return a.at.Compare(b.at) })
}

// end is when the story has been told.
func (s told) end(t *testing.T) time.Time {
	t.Helper()
	end := last(s.Input.arrivals())
	for _, at := range s.Input.clock(end) {
		end = at
	}
	return end
}

// Two stories of other machines and jobs are told beside each other as each is told alone.
func TestAnotherStoryElsewhereChangesNothing(t *testing.T) {
	var all []told
	each(t, func(_ *testing.T, s told) {
		if s.Input.Kind != Flood {
			all = append(all, s)
		}
	})
	random, compared := rand.New(rand.NewPCG(1, 2)), 0 //nolint:gosec // which stories meet is no secret
	for _, s := range all {
		other, later := all[random.IntN(len(all))], time.Duration(random.IntN(120))*time.Second
		_, mine := s.options()
		if _, its := other.options(); mine != its || s.engines != other.engines {
			continue // they are told to engines of other settings
		}
		t.Run(s.Name+" and "+other.Name, func(t *testing.T) {
			here, there := s.Input.arrivals(), other.elsewhereAndLater(later)
			for i := range here {
				r := *here[i].record
				if r.Resource == nil {
					r.Resource = s.Input.Resource
				}
				here[i].record = &r
			}
			both := byArrival(slices.Concat(here, there))
			end := s.end(t)
			if its := other.end(t).Add(later); its.After(end) {
				end = its
			}
			at := clock(both, end.Add(time.Minute))
			want := slices.Concat(s.tell(t, byArrival(here), at, counted), s.tell(t, byArrival(there), at, counted))
			slices.Sort(want)
			compared += len(want)
			require.Equal(t, want, s.tell(t, both, at, counted))
		})
	}
	require.Greater(t, compared, 500, "the test sees something")
}

// After a story comes silence. What was told is resolved in it or expires; nothing is told anew
// of what was seen before, and no symptom becomes a cause.
func TestSilenceBringsNothingNew(t *testing.T) {
	compared := 0
	each(t, func(t *testing.T, s told) {
		if s.Input.Kind == Flood {
			return
		}
		// Role and headline, without how it stands.
		of := func(end time.Time) map[string]bool {
			says := map[string]bool{}
			arrivals := byArrival(s.Input.arrivals())
			for _, one := range s.tell(t, arrivals, clock(arrivals, end), named) {
				says[strings.Replace(one, " "+string(verdict.Resolved)+" ", " "+string(verdict.Open)+" ", 1)] = true
			}
			return says
		}
		end := s.end(t)
		told := of(end.Add(time.Nanosecond))
		compared += len(told)
		for one := range of(end.Add(20 * time.Minute)) {
			require.True(t, told[one], "told in the silence: %s", one)
		}
	})
	require.Greater(t, compared, 500, "the test sees something")
}
