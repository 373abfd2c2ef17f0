//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/truth/judge"
)

var began = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

// testBench has two lanes.
func testBench(lines ...judge.Line) *bench {
	b := &bench{options: options{jobs: 2, most: 4}, owners: newOwners(), agent: &agent{lines: lines}}
	b.lanes = []*lane{b.newLane(0), b.newLane(1)}
	for _, l := range b.lanes {
		l.ended = began
		b.owners.process(100+l.number, l.number)
		b.owners.job(fmt.Sprint("job-", l.number), l.number)
	}
	return b
}

// ids are those of the lines.
func ids(lines []judge.Line) (all []string) {
	for _, l := range lines {
		all = append(all, l.ID)
	}
	return all
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

func TestKindsAreLeftOut(t *testing.T) {
	chosen, err := (&options{only: "stopped, frozen, spins", skip: "spins,frozen"}).kinds()
	require.NoError(t, err)
	require.Len(t, chosen, 1)
	require.Equal(t, "stopped", chosen[0].name)
	_, err = (&options{only: "stopped", skip: "stopped"}).kinds()
	require.ErrorContains(t, err, "leaves no kind")
	_, err = (&options{skip: "no such thing"}).kinds()
	require.ErrorContains(t, err, `no kind "no such thing"`)
}

func TestAnUnknownKindIsNamed(t *testing.T) {
	_, err := choose("stopped, no such thing")
	require.ErrorContains(t, err, `no kind "no such thing"`)
	for names, count := range map[string]int{"stopped,steps": 2, "faults": len(faults()), "healthy": len(health()), "": len(kinds())} {
		chosen, err := choose(names)
		require.NoError(t, err)
		require.Len(t, chosen, count)
	}
}

func TestStatementsAreAboutTheLaneThatTheyName(t *testing.T) {
	b := testBench(
		accusation("process", 1, map[string]string{"pid": "100"}),
		accusation("job", 1, map[string]string{"pid": "7", "job": "job-0"}),
		accusation("job, not process", 1, map[string]string{"pid": "100", "job": "job-1"}),
		accusation("cgroup", 1, map[string]string{"pid": "7", "cgroup": "/truth-0-3"}),
		accusation("mount", 1, map[string]string{"mount": "/root/mnt/data1", "pid": "100"}),
		accusation("another lane's mount", 1, map[string]string{"mount": "/mnt/data11"}),
		accusation("nobody", 1, map[string]string{"host": "h"}),
		accusation("others", 1, map[string]string{"pid": "7", "job": "job-2"}),
	)
	truth := judge.Truth{Began: began}
	require.Equal(t, []string{"process", "job", "cgroup"}, ids(b.lanes[0].news(&truth)))
	require.Equal(t, []string{"job, not process", "mount"}, ids(b.lanes[1].news(&truth)))
	require.Equal(t, 1, b.owners.others())
}

// A statement about nobody is right where any lane's truth of the time has it, and else wrong
// once.
func TestStatementsAboutNobodyAreJudgedByAllTruths(t *testing.T) {
	of := func(id, pattern string, after time.Duration) judge.Line {
		l := accusation(id, after, map[string]string{"host": "h"})
		l.Pattern = pattern
		return l
	}
	b := testBench(of("right", "link_down", time.Second), of("late", "link_down", time.Hour), of("false", "straggler", time.Second))
	truth := judge.Truth{Began: began, Right: []judge.Answer{{Pattern: "link_down"}}}
	b.past.add([]span{{from: began, to: began.Add(time.Minute), truth: truth}, {from: began, to: began.Add(time.Minute)}})
	require.Equal(t, []string{"right", "late"}, ids(b.lanes[0].news(&truth)))
	require.Empty(t, b.lanes[1].news(&judge.Truth{Began: began}))
	require.Equal(t, []string{"late", "false"}, ids(b.strays()))
}

// Of a job that others ended before, the last death is the trial's.
func TestACrashLoopIsRightByTheLastDeath(t *testing.T) {
	tr := trial{rank: 0}
	tr.rightAgain("SIGSEGV|bad row 3")
	for headline, right := range map[string]bool{
		"job j dies at each start: 3 times within 4m, each time rank 0 (SIGSEGV)":                                                              true,
		"job j dies at each start, not always alike: rank 3 (exit status 3), rank 0 (exit status 1); the last displayed ValueError: bad row 3": true,
		"job j dies at each start, not always alike: rank 0 (exit status 3), rank 1 (exit status 1); the last displayed ValueError: bad row 3": false,
		"job j dies at each start, each time rank 0 (exit status 1)":                                                                           false,
	} {
		require.Equal(t, right, tr.truth.Right[0].Says.MatchString(headline), headline)
	}
}

func TestAnUpdateOfAnOldVerdictIsMarked(t *testing.T) {
	mine := map[string]string{"pid": "100"}
	b := testBench(accusation("old", -time.Second, mine), accusation("old", time.Second, mine), accusation("new", time.Second, mine))
	news := b.lanes[0].news(&judge.Truth{Began: began})
	require.Len(t, news, 2)
	require.True(t, news[0].Old)
	require.False(t, news[1].Old)
}

func TestWhatIsSaidBetweenTrialsCounts(t *testing.T) {
	mine := map[string]string{"pid": "100", "rank": "1"}
	late := accusation("late", time.Second, mine) // about the trial before
	busy := accusation("busy", time.Second, map[string]string{"pid": "100"})
	busy.Pattern = "straggler"
	b := testBench(late, busy, accusation("false", 2*time.Second, map[string]string{"pid": "100", "rank": "2"}),
		accusation("of the other lane", 2*time.Second, map[string]string{"pid": "101", "rank": "2"}), accusation("in the trial", time.Minute, mine))
	b.lanes[0].before = judge.Truth{Right: []judge.Answer{{Pattern: "rank_exit", Culprit: map[string]string{"rank": "1"}}}}
	b.past.add([]span{{from: began, to: began.Add(time.Minute), host: true, truth: judge.Truth{Also: []judge.Answer{{Pattern: "straggler"}}}}})
	now := &judge.Truth{Began: began.Add(30 * time.Second)}
	require.Equal(t, []string{"false"}, ids(b.lanes[0].quiet(now)))
	require.Equal(t, []string{"of the other lane"}, ids(b.lanes[1].quiet(now)))
}

// TestWhatIsSaidBeforeATrialThatNeverBeganCounts: the job did not do what it was told.
func TestWhatIsSaidBeforeATrialThatNeverBeganCounts(t *testing.T) {
	b := testBench(accusation("false", time.Second, map[string]string{"pid": "100"}))
	l := b.lanes[0]
	l.job = &job{world: 2}
	tr := l.newTrial(1)
	require.Equal(t, []string{"false"}, ids(l.quiet(&tr.truth)))
	require.Empty(t, l.news(&tr.truth))
}

// Which kinds a lane tries is decided by the seed, however long the others take.
func TestKindsAreDealtOnceEachAmongTheLanes(t *testing.T) {
	dealt := func() (first []string) {
		for n, k := range testBench().deal(kinds()) {
			if n > len(kinds()) {
				break
			}
			first = append(first, k.name)
		}
		return first
	}
	require.Equal(t, dealt(), dealt())
	require.Len(t, kinds(), len(slices.Compact(slices.Sorted(slices.Values(dealt())))))
}

func TestJobsOfLanesHaveNamesAndPortsOfTheirOwn(t *testing.T) {
	seen := map[int]int{}
	for range 1000 {
		for _, l := range testBench().lanes {
			l.chance = rand.New(rand.NewPCG(uint64(len(seen)), 0)) //nolint:gosec // any will do
			j := l.draw(&kind{})
			for _, port := range []int{j.port, j.port + 1} {
				other, taken := seen[port]
				require.True(t, !taken || other == l.number)
				seen[port] = l.number
			}
		}
	}
}

func TestAddressesOfTheAgentDiffer(t *testing.T) {
	free, err := freeAddresses(20)
	require.NoError(t, err)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(free))), 20)
}

func TestTheReportHasEveryMiss(t *testing.T) {
	fault, healthy := faults()[0], health()[0]
	b := testBench()
	right := judge.Outcome{Culprit: true, Cause: true, First: 2 * time.Second, Resolved: true, Resolve: time.Second}
	b.results.add([]result{
		{Kind: fault, World: 4, Style: "torchrun", Outcome: right, Heals: true},
		{Kind: fault, World: 5, Style: "torchrun", Outcome: judge.Outcome{Culprit: true, Cause: true, First: time.Second}, Heals: true},
		{Kind: fault, World: 4, Style: "torchrun"},
		{Kind: healthy, World: 3, Style: "Slurm", Outcome: judge.Outcome{Wrong: []judge.Line{accusation("a", 1, nil)}}},
		{Kind: healthy, World: 3, Style: "Slurm", Healthy: 90 * time.Minute, Void: "the job makes | no step"},
		{Kind: fault, World: 6, Style: "torchrun", Healthy: 15 * time.Minute, Outcome: judge.Outcome{Culprit: true, Cause: true, First: 6 * time.Second, Resolved: true}, Heals: true},
	})
	other := right
	other.Placed, other.Told = true, []judge.Line{accusation("at another line", 1, nil)}
	right.Placed, right.Line = true, true
	spins := fault
	spins.name, spins.late = "spins", time.Minute
	b.results.add([]result{{Kind: spins, World: 2, Style: "mpirun", Outcome: other}, {Kind: spins, World: 3, Style: "mpirun", Outcome: right}})
	var text strings.Builder
	require.NoError(t, b.account().write(&text))
	page := text.String()
	require.Contains(t, page, "- spins, 2 ranks, mpirun: line not told. rank_exit")
	require.NotContains(t, page, "- spins, 3 ranks")
	require.Contains(t, page, "| 2 of 2 (100 %) | 1 of 2 (50 %) | 0 |")
	require.Contains(t, page, "| culprit and cause right | 3 of 4 (75 %) |")
	require.Contains(t, page, "| false statements in them | 1 |")
	require.Contains(t, page, "all jobs together | 1.75 |")
	require.Contains(t, page, "- stopped, 6 ranks, torchrun: told after 6.00 s")
	require.Contains(t, page, "- stopped, 4 ranks, torchrun: not told.")
	require.Contains(t, page, "- stopped, 5 ranks, torchrun: not told to be over within 15s")
	require.Contains(t, page, "| told to be over within 15 s of its end | 2 of 3 (67 %) |")
	require.Contains(t, page, "rank died")
	require.Contains(t, page, `showed nothing: the job makes \| no step`)
	require.ErrorContains(t, b.account().verdict(), "1 false statements")
	require.NotContains(t, page, "without the receivers")
	b.without, b.only = "ncclsock", "stopped, steps"
	require.Contains(t, b.conditions(), "up to 4 ranks each, only the kinds stopped, steps, without the receivers ncclsock.")
}

func TestTheTargetIsMetByWhatIsRight(t *testing.T) {
	b := testBench()
	require.ErrorContains(t, b.account().verdict(), "no trial")
	b.results.add([]result{{Kind: faults()[0], Outcome: judge.Outcome{Culprit: true, Cause: true}}, {Kind: health()[0]}})
	require.NoError(t, b.account().verdict())
	b.between.add([]judge.Line{accusation("a", 1, nil)})
	require.ErrorContains(t, b.account().verdict(), "1 false statements")
}

// A file sums the runs of several machines; one that cannot be read is left as it is.
func TestRunsAreSummed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs.json")
	for _, r := range []result{{Kind: faults()[1], World: 2, Outcome: judge.Outcome{Culprit: true}}, {Kind: health()[0], Healthy: time.Hour}, {Kind: health()[1], Healthy: time.Hour, Void: "no step"}} {
		b := testBench()
		b.results.add([]result{r})
		b.between.add([]judge.Line{accusation("a", 1, nil)})
		require.NoError(t, b.account().since(file))
	}
	sum := &account{}
	require.NoError(t, sum.since(file))
	require.Len(t, sum.Runs, 3)
	require.Len(t, sum.Between, 3)
	require.Equal(t, 2*time.Hour, sum.healthy())
	tried, quiet := sum.sums()
	require.Equal(t, []int{1, 1, 0, 1, 1}, []int{tried.trials, tried.culprit, tried.cause, quiet.trials, quiet.void})
	require.Equal(t, "frozen", sum.Results[0].Kind.name)
	require.NotNil(t, sum.Results[0].Kind.do)

	told := []judge.Line{accusation("a", 1, nil)}
	b := testBench()
	b.results.add([]result{
		{Kind: faults()[1], Outcome: judge.Outcome{Culprit: true, Cause: true, Told: told, Beside: told}},
		{Kind: faults()[1], Outcome: judge.Outcome{Culprit: true, Told: told}},
	})
	require.NoError(t, b.account().since(file))
	sum = &account{}
	require.NoError(t, sum.since(file))
	require.Len(t, sum.Results, 5)
	require.Empty(t, append(sum.Results[3].Outcome.Told, sum.Results[3].Outcome.Beside...), "right, and nothing to list")
	require.Equal(t, told[0].Headline, sum.Results[4].Outcome.Told[0].Headline, "the page shows what was told")

	for _, damaged := range []string{`{"results":[{"Kind":"no such kind"}]}`, `{"runs":`} {
		require.NoError(t, os.WriteFile(file, []byte(damaged), 0o600))
		require.ErrorContains(t, testBench().account().since(file), file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, damaged, string(text))
	}
}

// Each class counts by its share, however often it was tried; what was not tried counts nothing.
func TestClassesCountByTheirShares(t *testing.T) {
	b := testBench()
	of := func(c class) kind { return kind{name: string(c), class: c} }
	right := judge.Outcome{Culprit: true, Cause: true}
	b.results.add([]result{
		{Kind: of(hang), Outcome: right}, {Kind: of(hang)}, {Kind: of(software), Outcome: right}, {Kind: of(software), Outcome: right},
		{Kind: of(network), Void: "void"}, {Kind: of(operator)},
		{Kind: kind{class: software, late: time.Minute}}, {Kind: kind{healthy: true}},
	})
	var text strings.Builder
	b.account().weigh(&text)
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
			l := testBench().lanes[0]
			l.chance = rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // any will do
			j := l.draw(&k)
			require.True(t, !k.apart || j.apart(), k.name)
			require.LessOrEqual(t, j.world, 8)
			require.GreaterOrEqual(t, j.world, 2)
		}
	}
	l := testBench().lanes[0]
	l.root, l.launcher = t.TempDir(), "mpirun"
	require.NotEqual(t, "mpirun", l.draw(&kind{}).how.name, "the root has none")
	require.NoError(t, os.MkdirAll(filepath.Join(l.root, "usr/bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(l.root, "usr/bin/mpirun"), nil, 0o700))
	require.Equal(t, "mpirun", l.draw(&kind{}).how.name)
	require.True(t, l.draw(&kind{apart: true}).apart())
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
