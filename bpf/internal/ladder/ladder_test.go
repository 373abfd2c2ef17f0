//go:build linux

package ladder

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/probe"
)

func rung(id string, fired bool, err error) Rung[string] {
	return Rung[string]{ID: id, Try: func() (string, bool, error) { return id, fired, err }}
}

func TestClimbTakesTheFirstRungThatWorksAndSaysWhyNotTheBetter(t *testing.T) {
	got, report, err := Climb("x", "", []Rung[string]{
		rung("best", false, fmt.Errorf("load: %w", ErrSilent)),
		rung("second", true, nil),
		rung("third", true, nil),
	})
	require.NoError(t, err)
	require.Equal(t, "second", got)
	require.Equal(t, probe.Report{Probe: "x", Rung: "second", Attempts: []probe.Attempt{
		{Rung: "best", Outcome: probe.Silent, Reason: "load: " + ErrSilent.Error()},
		{Rung: "second", Outcome: probe.OK, Fired: true},
	}}, report)
}

func TestClimbWithoutAWorkingRungSaysWhatToDo(t *testing.T) {
	_, report, err := Climb("x", "", []Rung[string]{
		rung("only", false, &Problem{Outcome: probe.Unsupported, Reason: "no such hook", Hint: "use Linux 5.8"}),
	})
	var none *NoRung
	require.ErrorAs(t, err, &none)
	require.EqualError(t, err, "open x: no hook works: only unsupported (no such hook): use Linux 5.8")
	require.Equal(t, report, none.Report)
	require.True(t, none.Lasting())
	none.Report.Attempts = append(none.Report.Attempts, probe.Attempt{Outcome: probe.Broken})
	require.False(t, none.Lasting())
	require.Empty(t, report.Rung)
}

func TestClimbTriesOnlyTheForcedRung(t *testing.T) {
	rungs := []Rung[string]{rung("a", true, nil), rung("b", false, nil)}
	got, report, err := Climb("x", "b", rungs)
	require.NoError(t, err)
	require.Equal(t, "b", got)
	require.Len(t, report.Attempts, 1)

	_, _, err = Climb("x", "c", rungs)
	require.EqualError(t, err, `open x: unknown rung "c": use one of a, b`)
}

func TestClassifyTellsAbsentForbiddenAndBrokenApart(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want probe.Outcome
	}{
		"missing BTF type":       {fmt.Errorf("load: %w", btf.ErrNotFound), probe.Unsupported},
		"missing symbol":         {fmt.Errorf("attach: %w", unix.ENOENT), probe.Unsupported},
		"old kernel":             {fmt.Errorf("load: %w", ebpf.ErrNotSupported), probe.Unsupported},
		"no privilege":           {fmt.Errorf("load: %w", unix.EPERM), probe.Denied},
		"refused by policy":      {fmt.Errorf("open: %w", unix.EACCES), probe.Denied},
		"refused by verifier":    {&ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R0 !read_ok"}}, probe.Broken},
		"silent":                 {ErrSilent, probe.Silent},
		"what the rung knew":     {fmt.Errorf("x: %w", &Problem{Outcome: probe.Denied, Reason: "r", Err: unix.ENOENT}), probe.Denied},
		"anything else":          {errors.New("boom"), probe.Broken},
		"long error is one line": {errors.New("first\nsecond"), probe.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			got := Classify("r", tc.err)
			require.Equal(t, tc.want, got.Outcome)
			require.NotEmpty(t, got.Reason)
			require.NotContains(t, got.Reason, "\n")
		})
	}
}

func TestLockdownIsADenialAndNoDefect(t *testing.T) {
	refused := &ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"program of this type cannot use helper bpf_probe_read_kernel#113"}}
	got := classify("r", refused, "confidentiality")
	require.Equal(t, probe.Denied, got.Outcome)
	require.Contains(t, got.Hint, "lockdown=confidentiality")
	require.Equal(t, probe.Broken, classify("r", refused, "integrity").Outcome)
}

func TestDenialHintNamesTheLikeliestCause(t *testing.T) {
	require.Contains(t, denialHint("confidentiality", ^uint64(0)), "lockdown=confidentiality")
	require.Contains(t, denialHint("", 0), "CAP_BPF")
	require.Contains(t, denialHint("integrity", 1<<capBPF|1<<capPerfmon), "although the capabilities are there")
	require.Contains(t, denialHint("none", 1<<capSysAdmin), "although the capabilities are there")
}
