package check

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

// fake is a probe whose outcomes a test sets.
type fake struct {
	fire, close error
	outcome     probe.Outcome // of its hook once it was fired
	attempt     probe.Attempt
	closed      int
}

func (f *fake) Report() probe.Report {
	return probe.Report{Probe: "fake", Rung: "tp_btf/fake", Attempts: []probe.Attempt{f.attempt}}
}

func (f *fake) Fire(context.Context) error {
	f.attempt.Fired, f.attempt.Outcome = f.fire == nil, f.outcome
	return f.fire
}

func (f *fake) Close() error { f.closed++; return f.close }

func newFake(fire, closing error, outcome probe.Outcome) *fake {
	return &fake{fire: fire, close: closing, outcome: outcome, attempt: probe.Attempt{Rung: "tp_btf/fake", Outcome: probe.OK}}
}

func TestRunFiresEachProbeAndClosesIt(t *testing.T) {
	for name, tt := range map[string]struct {
		fake   *fake
		works  bool
		fired  bool
		status Status
		hint   string
	}{
		"works":                    {newFake(nil, nil, probe.OK), true, true, OK, ""},
		"stays silent":             {newFake(errors.New("no event came"), nil, probe.Silent), false, false, Unusable, ""},
		"the cause cannot be made": {newFake(errors.New("cgroups are read-only"), nil, probe.OK), true, false, OK, "it could not be fired: cgroups are read-only"},
		"closes with woe":          {newFake(nil, errors.New("close"), probe.OK), false, true, Unusable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t.Context(), []subject{{name: "fake", offers: Features(), open: func() (handle, error) { return tt.fake, nil }}}, true)
			require.Equal(t, tt.works, got[0].Works())
			require.Equal(t, tt.fired, got[0].Fired)
			require.Equal(t, "tp_btf/fake", got[0].Rung)
			require.Equal(t, tt.hint, got[0].Attempts[0].Hint)
			require.Equal(t, 1, tt.fake.closed)
			require.Equal(t, tt.status, StatusOf(got))
		})
	}
}

func TestSurveyMakesNoCause(t *testing.T) {
	f := newFake(errors.New("must not be called"), nil, probe.Silent)
	got := run(t.Context(), []subject{{name: "fake", offers: Features(), open: func() (handle, error) { return f, nil }}}, false)
	require.True(t, got[0].Works())
	require.False(t, got[0].Fired)
}

func TestAProbeThatDoesNotOpenKeepsItsReason(t *testing.T) {
	open := func() (handle, error) { return nil, errors.New("open fake: no hook works") }
	ok := func() (handle, error) { return newFake(nil, nil, probe.OK), nil }
	got := run(t.Context(), []subject{{name: "fake", offers: []Feature{KernelLog}, open: open}, {name: "other", offers: []Feature{OOMKills}, open: ok}}, true)
	require.Equal(t, "open fake: no hook works", got[0].Error)
	require.NotNil(t, got[0].Attempts, "a list in JSON, never null")
	require.Equal(t, Degraded, StatusOf(got))
}

func TestARungCanLackWhatAProbeOffers(t *testing.T) {
	lacks := func(r probe.Report) []Feature {
		require.Equal(t, "tp_btf/fake", r.Rung)
		return []Feature{Exits}
	}
	open := func() (handle, error) { return newFake(nil, nil, probe.OK), nil }
	got := run(t.Context(), []subject{{name: "fake", offers: []Feature{Identity, Exits}, lacks: lacks, open: open}}, true)[0]
	require.Equal(t, []Feature{Identity, Exits}, got.Offers)
	require.Equal(t, []Feature{Identity}, got.Delivers)
}

// TestEveryFeatureHasOneProbe: who lacks a feature is told which probe to mend.
func TestEveryFeatureHasOneProbe(t *testing.T) {
	var offered []Feature
	for _, s := range subjects() {
		offered = append(offered, s.offers...)
	}
	require.ElementsMatch(t, Features(), offered)
}

func TestStatusFollowsWhatIsDelivered(t *testing.T) {
	for name, tt := range map[string]struct {
		delivers []Feature
		want     Status
	}{
		"everything":                 {Features(), OK},
		"no exits":                   {[]Feature{KernelLog, OOMKills, Identity}, Degraded},
		"one kind of fault":          {[]Feature{OOMKills}, Degraded},
		"names, and nothing to name": {[]Feature{Identity}, Unusable},
		"nothing":                    {nil, Unusable},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, StatusOf([]Probe{{Delivers: tt.delivers}, {}}))
		})
	}
}
