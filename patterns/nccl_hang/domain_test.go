package ncclhang

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

// behind is a job of two ranks of which that one did not come.
func behind(name, domain string, rank int) *job {
	j := newJob(2).does(1, steps(reduce, reduce), 1-rank).does(1, steps(reduce), rank)
	j.name, j.domain = name, domain
	return j
}

// TestJobsOfOneNameInTwoDomainsAreNotMixed: a stranger gives his job the name of another,
// or his dumps the same path.
func TestJobsOfOneNameInTwoDomainsAreNotMixed(t *testing.T) {
	for _, name := range []string{"llm", ""} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			mine, theirs := behind(name, "user 1", 1), behind(name, "user 2", 0)
			for i := range mine.said { // record by record, by turns
				j.Add((&job{name: name, domain: mine.domain, world: 2, at: mine.at, waited: mine.waited, said: mine.said[i : i+1]}).logs(), written)
				j.Add((&job{name: name, domain: theirs.domain, world: 2, at: theirs.at, waited: theirs.waited, said: theirs.said[i : i+1]}).logs(), written)
			}
			var found []Finding
			for _, round := range j.Flush() {
				found = append(found, round.Findings...)
			}
			require.Len(t, found, 2)
			for i, want := range []struct {
				domain   string
				culprits []int
			}{{"user 1", []int{1}}, {"user 2", []int{0}}} {
				require.Equal(t, want.domain, found[i].Domain)
				require.Equal(t, want.culprits, found[i].Culprits)
				require.Equal(t, name, found[i].Job)
				require.Equal(t, want.domain, found[i].record(0).Attributes["gen_ai.training.job_domain"])
			}
			require.NotEqual(t, found[0].ID, found[1].ID)
			require.NotEqual(t, found[0].Run, found[1].Run)
		})
	}
}

// TestARecordWithoutADomainIsTakenAtItsWord where one job alone has its name.
func TestARecordWithoutADomainIsTakenAtItsWord(t *testing.T) {
	for name, first := range map[string]int{"domain first": 0, "domain last": 1} {
		t.Run(name, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			whole := behind("llm", "", 1)
			for i := range 2 {
				part := *whole
				part.said = whole.said[i : i+1]
				if i == first {
					part.domain = "user 1"
				}
				j.Add(part.logs(), written)
			}
			rounds := j.Flush()
			require.Len(t, rounds, 1)
			require.Equal(t, []int{1}, rounds[0].Findings[0].Culprits)
			require.Equal(t, "user 1", rounds[0].Findings[0].Domain)
		})
	}
}

// TestSocketsOfAnotherDomainSayNothing: they accuse a rank of a job of the same name.
func TestSocketsOfAnotherDomainSayNothing(t *testing.T) {
	for domain, want := range map[string]Agreement{"user 1": Agree, "user 2": "", "": Agree} {
		t.Run(domain, func(t *testing.T) {
			j := newJoin(DefaultOptions)
			j.Add(behind("llm", "user 1", 1).logs(), written)
			stalls := socketLogs(deaf(1, 0))
			each(stalls, func(r plog.LogRecord) {
				if domain != "" {
					r.Attributes().PutStr("gen_ai.training.job_domain", domain)
				}
			})
			j.Add(stalls, written)
			require.Equal(t, want, j.Flush()[0].Findings[0].Sockets)
		})
	}
}

func each(ld plog.Logs, do func(plog.LogRecord)) {
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, r := range scope.LogRecords().All() {
				do(r)
			}
		}
	}
}

// TestAFloodOfDumpsTakesRoomFromItself: a user floods under one job or many, also under
// the name of another's; the job of another user on his host, and that of other hosts,
// are told of.
func TestAFloodOfDumpsTakesRoomFromItself(t *testing.T) {
	options := DefaultOptions
	options.Runs, options.Dumps = 8, 64
	for name, tc := range map[string]struct {
		job   func(i int) string
		group func(i int) string
	}{
		"many jobs":          {func(i int) string { return fmt.Sprint("j", i) }, func(int) string { return "0" }},
		"one job":            {func(int) string { return "flood" }, func(i int) string { return fmt.Sprint(i) }},
		"the name of others": {func(int) string { return "quiet" }, func(i int) string { return fmt.Sprint(i) }},
	} {
		for _, restored := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restored ", restored), func(t *testing.T) {
				j := newJoin(options)
				beside := behind("quiet", "user 1", 1)
				for i := range beside.said {
					beside.said[i].host = "loud"
				}
				j.Add(beside.logs(), written)
				j.Add(behind("other", "user 1", 0).logs(), written)
				if restored {
					state, err := j.Snapshot()
					require.NoError(t, err)
					j = newJoin(options)
					require.NoError(t, j.Restore(state))
				}
				for i := range 1000 {
					flood := newJob(2).in(said{rank: i % 2, host: "loud", group: tc.group(i), did: steps(reduce)})
					flood.name, flood.domain = tc.job(i), "user 2"
					j.Add(flood.logs(), written.Add(time.Millisecond))
				}
				require.Positive(t, j.Stats().EvictedDumps)
				require.LessOrEqual(t, j.Stats().Held, int64(options.Dumps))
				told := map[string][]int{}
				for _, round := range j.Flush() {
					for _, f := range round.Findings {
						if f.Domain == "user 1" {
							told[f.Job] = f.Culprits
						}
					}
				}
				require.Equal(t, map[string][]int{"quiet": {1}, "other": {0}}, told)
			})
		}
	}
}
