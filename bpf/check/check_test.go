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
	fired       bool
	closed      int
}

func (f *fake) Report() probe.Report {
	return probe.Report{Probe: "fake", Rung: "tp_btf/fake", Attempts: []probe.Attempt{{Rung: "tp_btf/fake", Outcome: probe.OK, Fired: f.fired}}}
}

func (f *fake) Fire(context.Context) error {
	f.fired = f.fire == nil
	return f.fire
}

func (f *fake) Close() error { f.closed++; return f.close }

func TestRunFiresEachProbeAndClosesIt(t *testing.T) {
	for name, tt := range map[string]struct {
		fake   fake
		works  bool
		status Status
	}{
		"works":           {fake{}, true, OK},
		"stays silent":    {fake{fire: errors.New("no event came")}, false, Unusable},
		"closes with woe": {fake{close: errors.New("close")}, false, Unusable},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.fake
			got := run(t.Context(), []subject{{"fake", "things", always(Features()...), func() (handle, error) { return &f, nil }}}, true)
			require.Equal(t, tt.works, got[0].Works())
			require.Equal(t, tt.fake.fire == nil, got[0].Fired)
			require.Equal(t, f.fired, got[0].Attempts[0].Fired, "the report is read after the cause")
			require.Equal(t, "tp_btf/fake", got[0].Rung)
			require.Equal(t, 1, f.closed)
			require.Equal(t, tt.status, StatusOf(got))
		})
	}
}

func TestSurveyMakesNoCause(t *testing.T) {
	f := fake{fire: errors.New("must not be called")}
	got := run(t.Context(), []subject{{"fake", "things", always(Features()...), func() (handle, error) { return &f, nil }}}, false)
	require.True(t, got[0].Works())
	require.False(t, got[0].Fired)
}

func TestAProbeThatDoesNotOpenKeepsItsReason(t *testing.T) {
	open := func() (handle, error) { return nil, errors.New("open fake: no hook works") }
	ok := func() (handle, error) { return &fake{}, nil }
	got := run(t.Context(), []subject{{"fake", "things", always(KernelLog), open}, {"other", "more", always(OOMKills), ok}}, true)
	require.Equal(t, "open fake: no hook works", got[0].Error)
	require.NotNil(t, got[0].Attempts, "a list in JSON, never null")
	require.Equal(t, Degraded, StatusOf(got))
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
