package story

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Who may be certain on the word of a process: faults that a job tells of itself. All
// others are about a machine, a GPU, a fabric or what the kernel saw.
func TestFewPatternsAreCertainOfAClaim(t *testing.T) {
	library, err := patterns.Library()
	require.NoError(t, err)
	var claimed, foreign []string
	for i := range library {
		if library[i].Trust.Full < verdict.Proven {
			claimed = append(claimed, library[i].Name)
		}
		if library[i].Trust.Partial < verdict.Claimed {
			foreign = append(foreign, library[i].Name)
		}
	}
	slices.Sort(claimed)
	slices.Sort(foreign)
	require.Equal(t, []string{"cuda_oom", "dataloader_hang", "nccl_hang", "node_pressure", "pod_evicted", "pod_not_starting", "silent_data_corruption", "straggler"}, claimed)
	require.Equal(t, []string{"silent_data_corruption", "straggler"}, foreign)
}

// lowered are the arrivals of s with the records that which picks trusted no more than
// that.
func (s told) lowered(trust verdict.Trust, which func(*Record) bool) []arrival {
	arrivals := s.Input.arrivals()
	for i := range arrivals {
		if r := arrivals[i].record; which(r) {
			weaker := *r
			weaker.Attributes = maps.Clone(r.Attributes)
			if weaker.Attributes == nil {
				weaker.Attributes = map[string]any{}
			}
			weaker.Attributes[rule.AttributeTrust] = trust.String()
			arrivals[i].record = &weaker
		}
	}
	return arrivals
}

// verdicts returns the verdicts that come of arrivals.
func (s told) verdicts(t *testing.T, arrivals []arrival) []verdict.Verdict {
	t.Helper()
	e := s.engine(t)
	defer s.done(e)
	verdicts, err := s.play(e, arrivals, last(s.Input.arrivals()))
	require.NoError(t, err)
	return verdicts
}

// What no driver and no kernel said makes nobody certain, and what strangers say makes
// no verdict but those of the training code.
func TestWhatIsNotProvenMakesNobodyCertain(t *testing.T) {
	all := func(*Record) bool { return true }
	each(t, func(t *testing.T, s told) {
		of := map[string]rule.LeastTrust{}
		for i := range s.rules {
			of[s.rules[i].Name] = s.rules[i].Trust
		}
		for _, trust := range []verdict.Trust{verdict.Claimed, verdict.Foreign} {
			for _, v := range s.verdicts(t, s.lowered(trust, all)) {
				least := of[v.Pattern]
				require.Equal(t, trust, v.Trust, "%s: %s", v.Pattern, v.Headline)
				require.LessOrEqual(t, least.Partial, trust, "%s: %s", v.Pattern, v.Headline)
				require.False(t, v.Confidence == verdict.Full && trust < least.Full, "%s: %s", v.Pattern, v.Headline)
			}
		}
	})
}

// A record that is trusted less changes nothing of what is proven: it makes no verdict
// and clears, refutes, prolongs and names nothing. It is as if it had not come.
func TestAWeakerRecordChangesNothingProven(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: it plays every story three times for many of its records")
	}
	each(t, func(t *testing.T, s told) {
		for _, one := range s.kinds() {
			if one.Attributes[rule.AttributeTrust] != verdict.Proven.String() {
				continue
			}
			without := slices.DeleteFunc(s.Input.arrivals(), func(a arrival) bool { return a.record == one })
			want := s.proven(s.verdicts(t, without))
			for _, trust := range []verdict.Trust{verdict.Claimed, verdict.Foreign} {
				got := s.proven(s.verdicts(t, s.lowered(trust, func(r *Record) bool { return r == one })))
				require.Equal(t, want, got, "record at %s (%s) is %s", time.Duration(one.At), cmp.Or(one.Log, one.Metric), trust)
			}
		}
	})
}

// echoed are the arrivals of s, with each record said once more by a stranger: before the
// truth, behind it, and all of it again at the end.
func (s told) echoed() []arrival {
	forged := s.lowered(verdict.Foreign, func(*Record) bool { return true })
	var all []arrival
	for i, a := range s.Input.arrivals() {
		all = append(all, forged[i], a, forged[i])
	}
	end := last(s.Input.arrivals())
	for _, a := range forged {
		a.at, a.time = end, end
		all = append(all, a)
	}
	return all
}

// Whatever a stranger says beside the truth, the truth stays: what is proven, what it
// clears, and when.
func TestAStrangerWhoRepeatsEverythingChangesNothingProven(t *testing.T) {
	each(t, func(t *testing.T, s told) {
		if s.Input.Kind == Flood {
			return // its own records are more than the caps allow
		}
		longer := *s.Story
		longer.Input.Advance = max(s.Input.Advance, Offset(5*time.Minute)) // all counts are given out
		s.Story = &longer
		require.Equal(t, s.proven(s.verdicts(t, s.Input.arrivals())), s.proven(s.verdicts(t, s.echoed())))
	})
}

// proven is what the proven verdicts say. One that is withdrawn is left out: where a weaker
// word had led to it, somebody has to be told that it was none.
func (s told) proven(verdicts []verdict.Verdict) []string {
	var said []string
	for _, v := range verdicts {
		if v.Trust == verdict.Proven && !s.withdrawn(v) {
			said = append(said, fmt.Sprint(v.Pattern, v.Status, v.Confidence, v.Severity, v.Onset, v.Resolved, v.Headline, v.Remediation, v.Culprit))
		}
	}
	slices.Sort(said)
	return said
}
