//go:build linux

package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/truth/judge"
)

var began = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func testBench(lines ...judge.Line) *bench {
	b := &bench{ids: map[string]bool{"job-1": true}, others: map[string]bool{}, agent: &agent{lines: lines}, ended: began}
	b.pids.Store(100, true)
	return b
}

func accusation(id string, after time.Duration, culprit map[string]string) judge.Line {
	return judge.Line{At: began.Add(after), ID: id, Incident: id, Pattern: "rank_exit", Role: "root_cause", Status: "open", Severity: "error", Headline: "rank died", Culprit: culprit}
}

func TestKindsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range kinds() {
		require.False(t, seen[k.name], k.name)
		require.NotEmpty(t, k.cause, k.name)
		require.NotNil(t, k.do, k.name)
		require.NotContains(t, k.name, ",", "names are separated by commas")
		seen[k.name] = true
	}
}

func TestAnUnknownKindIsNamed(t *testing.T) {
	_, err := choose("stopped, no such thing")
	require.ErrorContains(t, err, `no kind "no such thing"`)
	chosen, err := choose("stopped,steps")
	require.NoError(t, err)
	require.Len(t, chosen, 2)
}

func TestVerdictsAboutOthersAreCountedAndNotJudged(t *testing.T) {
	b := testBench(
		accusation("ours", 1, map[string]string{"pid": "100"}),
		accusation("our job", 1, map[string]string{"pid": "7", "job": "job-1"}),
		accusation("our cgroup", 1, map[string]string{"pid": "7", "cgroup": "/truth-3"}),
		accusation("of nobody", 1, map[string]string{"host": "h"}),
		accusation("theirs", 1, map[string]string{"pid": "7", "job": "job-2"}),
	)
	require.Len(t, b.news(began), 4)
	require.Equal(t, map[string]bool{"theirs": true}, b.others)
}

func TestAnUpdateOfAnOldVerdictIsMarked(t *testing.T) {
	mine := map[string]string{"pid": "100"}
	b := testBench(accusation("old", -time.Second, mine), accusation("old", time.Second, mine), accusation("new", time.Second, mine))
	news := b.news(began)
	require.Len(t, news, 2)
	require.True(t, news[0].Old)
	require.False(t, news[1].Old)
}

func TestWhatIsSaidBetweenTrialsCounts(t *testing.T) {
	mine := map[string]string{"pid": "100", "rank": "1"}
	late := accusation("late", time.Second, mine) // about the trial before
	b := testBench(late, accusation("false", 2*time.Second, map[string]string{"pid": "100", "rank": "2"}), accusation("in the trial", time.Minute, mine))
	b.before = judge.Truth{Right: []judge.Answer{{Pattern: "rank_exit", Culprit: map[string]string{"rank": "1"}}}}
	b.quiet(judge.Truth{Began: began.Add(30 * time.Second)})
	require.Len(t, b.between, 1)
	require.Equal(t, "false", b.between[0].ID)
}

func TestTheReportHasEveryMiss(t *testing.T) {
	fault, healthy := faults()[0], health()[0]
	b := testBench()
	right := judge.Outcome{Culprit: true, Cause: true, First: 2 * time.Second, Resolved: true, Resolve: time.Second}
	b.results = []result{
		{Kind: fault, World: 4, Style: "torchrun", Outcome: right, Heals: true},
		{Kind: fault, World: 5, Style: "torchrun", Outcome: judge.Outcome{Culprit: true, Cause: true, First: time.Second}, Heals: true},
		{Kind: fault, World: 4, Style: "torchrun"},
		{Kind: healthy, World: 3, Style: "Slurm", Outcome: judge.Outcome{Wrong: []judge.Line{accusation("a", 1, nil)}}},
		{Kind: healthy, World: 3, Style: "Slurm", Void: errors.New("the job makes | no step")},
	}
	var text strings.Builder
	require.NoError(t, b.write(&text))
	page := text.String()
	require.Contains(t, page, "| culprit and cause right | 2 of 3 (67 %) |")
	require.Contains(t, page, "| false statements in them | 1 |")
	require.Contains(t, page, "- stopped, 4 ranks, torchrun: not told.")
	require.Contains(t, page, "- stopped, 5 ranks, torchrun: not told to be over within 15s")
	require.Contains(t, page, "| told to be over within 15 s of its end | 1 of 2 (50 %) |")
	require.Contains(t, page, "rank died")
	require.Contains(t, page, `showed nothing: the job makes \| no step`)
	require.ErrorContains(t, b.verdict(), "1 false statements")
}

func TestTheTargetIsMetByWhatIsRight(t *testing.T) {
	b := testBench()
	require.ErrorContains(t, b.verdict(), "no trial")
	b.results = []result{{Kind: faults()[0], Outcome: judge.Outcome{Culprit: true, Cause: true}}, {Kind: health()[0]}}
	require.NoError(t, b.verdict())
	b.between = []judge.Line{accusation("a", 1, nil)}
	require.ErrorContains(t, b.verdict(), "1 false statements")
}

// Each class counts by its share, however often it was tried; what was not tried counts nothing.
func TestClassesCountByTheirShares(t *testing.T) {
	b := testBench()
	of := func(c class) kind { return kind{name: string(c), class: c} }
	right := judge.Outcome{Culprit: true, Cause: true}
	b.results = []result{
		{Kind: of(hang), Outcome: right}, {Kind: of(hang)}, {Kind: of(software), Outcome: right}, {Kind: of(software), Outcome: right},
		{Kind: of(network), Void: errors.New("void")}, {Kind: of(operator)},
		{Kind: kind{class: software, late: time.Minute}}, {Kind: kind{healthy: true}},
	}
	var text strings.Builder
	b.weigh(&text)
	require.Contains(t, text.String(), "| hangs | 4.5 % | 5.0 % | 1 of 2 (50 %) |")
	require.Contains(t, text.String(), "| switches, cables, links | 6.8 % | 1.4 % | not tried |")
	require.Contains(t, text.String(), "| all that was tried | 14.5 % | 49.0 % | 84.5 % and 94.9 % of it |")
}

func TestEveryFaultIsOfAClass(t *testing.T) {
	of := map[class]bool{}
	for _, w := range weights() {
		of[w.class] = true
	}
	for _, k := range faults() {
		require.True(t, of[k.class], k.name)
	}
	require.GreaterOrEqual(t, len(faults()), 40)
	require.GreaterOrEqual(t, len(health()), 20)
}

func TestWhatTheNetworkDoesTakesRanksApart(t *testing.T) {
	for _, k := range kinds() {
		for seed := range uint64(50) {
			b := &bench{options: options{most: 4}, chance: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // any will do
			j := b.draw(&k)
			require.True(t, !k.apart || j.apart(), k.name)
			require.LessOrEqual(t, j.world, 8)
			require.GreaterOrEqual(t, j.world, 2)
		}
	}
	b := &bench{options: options{most: 4, launcher: "mpirun"}, chance: rand.New(rand.NewPCG(1, 0))} //nolint:gosec // any will do
	require.Equal(t, "mpirun", b.draw(&kind{}).how.name)
	require.True(t, b.draw(&kind{apart: true}).apart())
}

// TestAnAgentWithFewerReceivers: those that are left out are in no pipeline, the others in theirs.
func TestAnAgentWithFewerReceivers(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "tracecore")
	const text = "#!/bin/sh\ncat <<'END'\nservice:\n  pipelines:\n    logs:\n      receivers: [ncclsock, stacks, otlp]\n    traces:\n      receivers: [otlp]\nEND\n"
	require.NoError(t, os.WriteFile(binary, []byte(text), 0o700))
	settings, err := (&agent{binary: binary, without: "ncclsock,stacks"}).fewer()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"--set=service.pipelines.logs.receivers=[otlp]", "--set=service.pipelines.traces.receivers=[otlp]"}, settings)
	settings, err = (&agent{binary: binary}).fewer()
	require.NoError(t, err)
	require.Empty(t, settings)
	_, err = (&agent{binary: binary, without: "nccl"}).fewer()
	require.ErrorContains(t, err, `no pipeline has a receiver "nccl"`)
}
