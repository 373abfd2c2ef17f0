package patterns

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// own writes gpu_lost as a file of the operator, changed.
func own(t *testing.T, change func(string) string) string {
	t.Helper()
	text, err := files.ReadFile("gpu_lost/pattern.yaml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(change(string(text))), 0o600))
	return file
}

func TestAPatternIsSwitchedOff(t *testing.T) {
	rules, err := Select(Selection{Patterns: map[string]Tuning{"rank_exit": {Off: true}}})
	require.NoError(t, err)
	require.NotContains(t, names(rules), "rank_exit")
	for i := range rules {
		require.False(t, slices.ContainsFunc(rules[i].Explains, func(x rule.Explain) bool { return x.Pattern == "rank_exit" }), rules[i].Name)
	}
	again, err := Library()
	require.NoError(t, err)
	require.Contains(t, names(again), "rank_exit", "the library is as it was")
}

func TestAFileReplacesAPattern(t *testing.T) {
	file := own(t, func(s string) string {
		return "replaces: gpu_lost\n" + strings.Replace(s, "expires: 72h", "expires: 1h", 1)
	})
	rules, err := Select(Selection{Rules: []string{file}})
	require.NoError(t, err)
	at := slices.Index(names(rules), "gpu_lost")
	require.Equal(t, file, rules[at].File)
	require.Len(t, rules, len(library(t)))
}

// A replacement has the id of what it replaces, or an own one.
func TestAReplacementCanHaveAnOwnID(t *testing.T) {
	_, err := Select(Selection{Rules: []string{own(t, func(s string) string { return "replaces: gpu_lost\n" + strings.Replace(s, "id: 18\n", "id: 1018\n", 1) })}})
	require.NoError(t, err)
}

func TestParametersAreSet(t *testing.T) {
	rules, err := Select(Selection{Patterns: map[string]Tuning{"fuse_stall": {Values: map[string]string{"silent": "20s"}}}})
	require.NoError(t, err)
	r := rules[slices.Index(names(rules), "fuse_stall")]
	require.Contains(t, r.Evidence[1].Where, ">= 20000000000")
	mine := own(t, func(s string) string {
		return "replaces: gpu_lost\nparameters:\n  keep: {type: duration, default: 1h, range: [1m, 2h], meaning: how long}\n" + strings.Replace(s, "expires: 72h", "expires: $keep", 1)
	})
	rules, err = Select(Selection{Rules: []string{mine}, Patterns: map[string]Tuning{"gpu_lost": {Values: map[string]string{"keep": "2h"}}}})
	require.NoError(t, err)
	require.Equal(t, "2h0m0s", rules[slices.Index(names(rules), "gpu_lost")].Expires.String())
}

func TestASelectionThatDoesNotFitIsAnError(t *testing.T) {
	same := func(s string) string { return s }
	for name, tc := range map[string]struct {
		selection Selection
		want      string
	}{
		"no such pattern":      {Selection{Patterns: map[string]Tuning{"stragler": {Off: true}}}, `patterns::stragler: there is no pattern of that name: did you mean "straggler"?`},
		"out of range":         {Selection{Patterns: map[string]Tuning{"fuse_stall": {Values: map[string]string{"silent": "9h"}}}}, "patterns::fuse_stall::silent: 9h is out of range"},
		"no such parameter":    {Selection{Patterns: map[string]Tuning{"fuse_stall": {Values: map[string]string{"silence": "9s"}}}}, `fuse_stall has no parameter "silence": did you mean "silent"?`},
		"moved":                {Selection{Patterns: map[string]Tuning{"nccl_socket_stall": {Values: map[string]string{"computing": "2m"}}}}, `patterns::nccl_socket_stall::computing: the receiver ncclsock judges by it: write receivers: {ncclsock: {patience: {computing: 2m}}}`},
		"a name that is taken": {Selection{Rules: []string{own(t, same)}}, "write replaces: gpu_lost to take its place"},
		"replaces nothing": {Selection{Rules: []string{own(t, func(s string) string {
			return "replaces: gpu_lots\n" + strings.Replace(s, "name: gpu_lost", "name: gpu_lots", 1)
		})}}, `replaces the pattern "gpu_lots", which is not built in: did you mean "gpu_lost"?`},
		"replaces another name": {Selection{Rules: []string{own(t, func(s string) string { return "replaces: rank_exit\n" + s })}}, "mine.yaml:1:11: this file is named \"gpu_lost\" and replaces \"rank_exit\""},
		"an id of tracecore's": {Selection{RulesAt: "rules: ", Rules: []string{own(t, func(s string) string {
			return strings.NewReplacer("name: gpu_lost", "name: mine", "id: 18\n", "id: 999\n").Replace(s)
		})}}, ": id 999: ids below 1000 are tracecore's: write 1000 or above"},
		"an id of another": {Selection{Rules: []string{own(t, func(s string) string {
			return strings.NewReplacer("name: gpu_lost", "name: mine").Replace(s)
		})}}, "the id 18 is taken by gpu_lost/pattern.yaml (gpu_lost): choose another id, 1000 and above are free"},
		"replaces with an id of tracecore's": {Selection{Rules: []string{own(t, func(s string) string {
			return "replaces: gpu_lost\n" + strings.Replace(s, "id: 18\n", "id: 999\n", 1)
		})}}, "id 999: write 18, the id of gpu_lost, which this file replaces"},
		"the same twice": {Selection{Rules: []string{own(t, func(s string) string { return "replaces: gpu_lost\n" + s }), own(t, func(s string) string { return "replaces: gpu_lost\n" + s })}},
			`replaces the pattern "gpu_lost"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Select(tc.selection)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
