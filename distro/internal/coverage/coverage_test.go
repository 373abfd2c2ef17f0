package coverage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var sources = Sources{features: map[string]check.Feature{"gpu.xid": check.KernelLog, "oom.kill": check.OOMKills, "process.exit": check.Exits}}

func expr(t *testing.T, text string) rule.Expr {
	t.Helper()
	e, err := rule.ParseExpr(text)
	require.NoError(t, err)
	return e
}

// impact needs a kernel record for anything and a metric or an exit for all.
func impact(t *testing.T) rule.Rule {
	return rule.Rule{
		ID: 16, Name: "xid_impact",
		Culprit: []string{"host", "rank"},
		Evidence: []rule.Evidence{
			{Name: "xid", Logs: []string{"gpu.xid"}},
			{Name: "death", Logs: []string{"process.exit", "oom.kill"}},
			{Name: "errors", Metrics: []string{"hw.errors"}},
		},
		Full:    expr(t, "xid and (death or errors)"),
		Partial: expr(t, "xid"),
	}
}

func TestPatternFollowsTheProbes(t *testing.T) {
	withoutMetric := impact(t)
	withoutMetric.Full = expr(t, "xid and death")
	unnamed := withoutMetric
	unnamed.Culprit = nil
	for name, tt := range map[string]struct {
		rule    rule.Rule
		there   map[check.Feature]bool
		want    State
		because []string
	}{
		"every probe": {impact(t), map[check.Feature]bool{check.KernelLog: true, check.OOMKills: true, check.Identity: true, check.Exits: true}, Full, []string{}},
		"an alternative that is lost is not missed": {
			impact(t), map[check.Feature]bool{check.KernelLog: true, check.Identity: true, check.Exits: true}, Full, []string{},
		},
		"nobody is named": {
			impact(t), map[check.Feature]bool{check.KernelLog: true, check.OOMKills: true}, Degraded,
			[]string{"ranks, jobs, pods and containers are not named: needs process_identity"},
		},
		"only the partial verdict": {
			unnamed, map[check.Feature]bool{check.KernelLog: true}, Degraded,
			[]string{"death cannot be seen: needs oom_kills or process_exits"},
		},
		"nothing": {
			withoutMetric, map[check.Feature]bool{check.OOMKills: true, check.Identity: true, check.Exits: true}, Blind,
			[]string{"xid cannot be seen: needs kernel_log"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := sources.Of([]rule.Rule{tt.rule}, tt.there)[0]
			require.Equal(t, tt.want, got.State)
			require.Equal(t, tt.because, got.Because)
			require.Equal(t, len(tt.because) == 0, len(got.Lacks) == 0, "%v", got.Lacks)
			require.Equal(t, []string{"metric hw.errors"}, got.Needs)
		})
	}
}

// A finding is as visible as what its detector makes it from.
func TestAFindingNeedsWhatItsDetectorNeeds(t *testing.T) {
	r := rule.Rule{
		Evidence: []rule.Evidence{{Name: "culprit", Logs: []string{"finding.x"}}}, Full: expr(t, "culprit"),
		Detect: &rule.Detector{Logs: []string{"oom.kill", "gpu.xid"}, Findings: map[string][]string{"finding.x": {"gpu.xid"}}},
	}
	require.Equal(t, Blind, sources.Of([]rule.Rule{r}, map[check.Feature]bool{check.OOMKills: true})[0].State)
	require.Equal(t, Full, sources.Of([]rule.Rule{r}, map[check.Feature]bool{check.KernelLog: true})[0].State)
}

// Where nothing shows who wrote a line of the kernel log, a pattern that takes proof
// of it is not full. One that has other proof is, and so is one that takes the word of
// a process.
func TestLinesWithoutAWriterAreNoProof(t *testing.T) {
	there := map[check.Feature]bool{check.KernelLog: true, check.OOMKills: true}
	proven, claimed, other := rule.Rule{
		Evidence: []rule.Evidence{{Name: "xid", Logs: []string{"gpu.xid"}}}, Full: expr(t, "xid"), Trust: rule.LeastTrust{Full: verdict.Proven},
	}, rule.Rule{
		Evidence: []rule.Evidence{{Name: "xid", Logs: []string{"gpu.xid"}}}, Full: expr(t, "xid"), Trust: rule.LeastTrust{Full: verdict.Claimed},
	}, rule.Rule{
		Evidence: []rule.Evidence{{Name: "xid", Logs: []string{"gpu.xid"}}, {Name: "kill", Logs: []string{"oom.kill"}}}, Full: expr(t, "xid or kill"),
		Trust: rule.LeastTrust{Full: verdict.Proven},
	}
	got := sources.Of([]rule.Rule{proven, claimed, other}, there)
	require.Equal(t, Degraded, got[0].State)
	require.Equal(t, []string{"xid is a claim: needs kernel_origins"}, got[0].Because)
	require.Equal(t, []check.Feature{check.Origins}, got[0].Lacks)
	require.Equal(t, Full, got[1].State, got[1].Because)
	there[check.Origins] = true
	require.Equal(t, Full, sources.Of([]rule.Rule{proven}, there)[0].State)
	require.Equal(t, Full, got[2].State, got[2].Because)
}

// A pattern that only others' records are left for says so: nobody promised them.
func TestWhatAProbeWouldSayIsNotLeftToOthersInSilence(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	sources, err := LoadSources()
	require.NoError(t, err)
	for lost, want := range map[check.Feature]map[string][]string{
		check.GPUMemory:       {"cuda_oom": {"unexplained is left to what others send: needs gpu_memory"}},
		check.CollectiveCalls: {"nccl_hang": {"not_called is left to what others send: needs collective_calls"}},
		check.KernelLog: {
			"ib_link_flap":      {"down_and_up cannot be seen: needs kernel_log"},
			"node_memory_error": {"lost_page cannot be seen: needs kernel_log"},
		},
	} {
		there := sources.every()
		delete(there, lost)
		there[check.Identity] = true
		for _, p := range sources.Of(rules, there) {
			if because, ok := want[p.Name]; ok {
				require.Equal(t, Degraded, p.State, p.Name)
				require.Equal(t, []check.Feature{lost}, p.Lacks, p.Name)
				require.Subset(t, p.Because, because, p.Name)
				delete(want, p.Name)
			}
		}
		require.Empty(t, want)
		there[lost] = true
		for _, p := range sources.Of(rules, there) {
			require.Equal(t, Full, p.State, "%s: %v", p.Name, p.Because)
		}
	}
}

func TestAnEventOfOthersIsANeedAndNoProbesFault(t *testing.T) {
	r := rule.Rule{Evidence: []rule.Evidence{{Name: "dump", Logs: []string{"nccl.fr"}}}, Full: expr(t, "dump")}
	got := sources.Of([]rule.Rule{r}, nil)[0]
	require.Equal(t, Full, got.State)
	require.Equal(t, []string{"event nccl.fr"}, got.Needs)
}

// TestEveryFeatureOfAnEventIsOffered finds a slip of the pen in a metadata.yaml: each
// feature is one that a probe offers, and each feature but identity and origins gives an event.
func TestEveryFeatureOfAnEventIsOffered(t *testing.T) {
	sources, err := LoadSources()
	require.NoError(t, err)
	offered := map[check.Feature]bool{check.Identity: true, check.Origins: true}
	for _, feature := range sources.features {
		offered[feature] = true
	}
	require.Equal(t, map[check.Feature]bool{
		check.Identity: true, check.Origins: true, check.KernelLog: true, check.OOMKills: true, check.Exits: true, check.FUSEStalls: true,
		check.GPUMemory: true, check.SocketStalls: true, check.CollectiveCalls: true, check.Exceptions: true, check.RankStacks: true,
	}, offered)
}

// TestFeaturesSayWhatTheyAreFor maps each feature to the probe that offers it and
// the patterns that read it.
func TestFeaturesSayWhatTheyAreFor(t *testing.T) {
	probes := []check.Probe{
		{Report: probe.Report{Probe: "kmsg"}, Offers: []check.Feature{check.KernelLog}, Delivers: []check.Feature{check.KernelLog}},
		{Report: probe.Report{Probe: "identity"}, Offers: []check.Feature{check.Identity, check.Exits}, Delivers: []check.Feature{check.Identity}},
	}
	deaf := rule.Rule{Name: "deaf", Evidence: []rule.Evidence{{Name: "errors", Metrics: []string{"hw.errors"}}}}
	require.Equal(t, []Feature{
		{ID: check.KernelLog, Here: true, Probe: "kmsg", Events: []string{"gpu.xid"}, Patterns: []string{"xid_impact"}},
		{ID: check.Identity, Here: true, Probe: "identity", Events: []string{}, Patterns: []string{"xid_impact"}},
		{ID: check.Exits, Here: false, Probe: "identity", Events: []string{"process.exit"}, Patterns: []string{"xid_impact"}},
	}, sources.Features([]rule.Rule{impact(t), deaf}, probes))
}
