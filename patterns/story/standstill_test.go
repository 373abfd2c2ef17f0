package story

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// witnesses are how the records begin of those who say for whom a job waits.
var witnesses = []string{"nccl.collective.", "nccl.socket."}

// standstill is what people were told of why jobs stand still.
type standstill struct {
	newest map[string]verdict.Verdict
	leads  map[string]bool // it was told as the root cause of a fault
	pairs  int
}

func (s *standstill) take(told []verdict.Verdict) {
	for _, v := range told {
		if v.Pattern == "nccl_hang" || v.Pattern == "nccl_socket_stall" {
			s.newest[v.ID] = v
		}
	}
}

// check fails where one stop has two root causes, or another one than people were told of, for no reason.
func (s *standstill) check(t *testing.T) {
	t.Helper()
	for id, v := range s.newest {
		for other, w := range s.newest {
			if id >= other || v.Status != verdict.Open || w.Status != verdict.Open || !ofOneStop(&v, &w) {
				continue
			}
			s.pairs++
			if v.Role == verdict.RootCause && w.Role == verdict.RootCause {
				certain := v.Confidence == verdict.Full && w.Confidence == verdict.Full
				require.True(t, certain && v.Culprit["rank"] != w.Culprit["rank"], "two root causes: %s; %s", v.Headline, w.Headline)
			}
		}
		cause, explained := s.newest[v.RootCause]
		if s.leads[id] && explained && v.Status == verdict.Open {
			surer := cause.Confidence == verdict.Full && v.Confidence != verdict.Full
			allWait := slices.ContainsFunc(cause.Evidence, func(e verdict.Evidence) bool { return e.Name == "all_wait" })
			another := cause.Pattern == "nccl_hang" && (allWait || cause.Culprit["rank"] != "" && cause.Culprit["rank"] != v.Culprit["rank"])
			require.True(t, surer || another, "told of twice: %s; before it: %s", cause.Headline, v.Headline)
		}
		s.leads[id] = v.Role == verdict.RootCause && v.Severity != verdict.Info
	}
}

// ofOneStop reports whether both are about one start of one job.
func ofOneStop(v, w *verdict.Verdict) bool {
	return v.Culprit["job"] == w.Culprit["job"] && v.Culprit["job_domain"] == w.Culprit["job_domain"] &&
		(v.Run == w.Run || v.Run == "" || w.Run == "")
}

// A standstill has one root cause, unless two verdicts are certain of two ranks. What people were told of stays it,
// unless another verdict is surer, or stacks name another rank than sockets do, or show that all wait: whichever of the witnesses comes late.
func TestAStandstillHasOneRootCause(t *testing.T) {
	pairs := 0
	each(t, func(t *testing.T, s told) {
		speaks := func(kind string) func(arrival) bool {
			return func(a arrival) bool { return strings.HasPrefix(a.record.Log, kind) }
		}
		arrivals := s.Input.arrivals()
		for _, kind := range witnesses {
			if !slices.ContainsFunc(arrivals, speaks(kind)) {
				return
			}
		}
		for _, kind := range witnesses {
			for _, late := range []time.Duration{0, time.Second, 3 * time.Second, 12 * time.Second, time.Minute} {
				delayed := slices.Clone(arrivals)
				for i := range delayed {
					if a := &delayed[i]; speaks(kind)(*a) {
						a.at, a.time = a.at.Add(late), a.time.Add(late)
					}
				}
				pairs += s.stopsOnce(t, byArrival(delayed))
			}
		}
	})
	require.Greater(t, pairs, 200, "the test sees something")
}

// stopsOnce plays the arrivals and checks all that is told.
func (s told) stopsOnce(t *testing.T, arrivals []arrival) (pairs int) {
	t.Helper()
	e := s.engine(t)
	defer s.done(e)
	said := standstill{newest: map[string]verdict.Verdict{}, leads: map[string]bool{}}
	for _, at := range clock(arrivals, arrivals[len(arrivals)-1].at.Add(2*time.Minute)) {
		e.Advance(at)
		for len(arrivals) > 0 && !arrivals[0].at.After(at) {
			require.NoError(t, s.feed(e, &arrivals[0]))
			arrivals = arrivals[1:]
		}
		said.take(e.Verdicts())
		said.check(t)
	}
	return said.pairs
}
