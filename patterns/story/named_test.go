package story

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// ranksNamed are the ranks that a text names: "rank 3", "ranks 0-2, 5".
var ranksNamed = regexp.MustCompile(`\branks? (\d+(?:-\d+)?(?:(?:, | and | or )\d+(?:-\d+)?)*)`)

// namesRank reports whether a text names a rank.
func namesRank(text, rank string) bool {
	n, err := strconv.Atoi(rank)
	if err != nil {
		return false
	}
	for _, found := range ranksNamed.FindAllStringSubmatch(text, -1) {
		for _, part := range regexp.MustCompile(`, | and | or `).Split(found[1], -1) {
			first, last, span := strings.Cut(part, "-")
			if !span {
				last = first
			}
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(last)
			if from <= n && n <= to {
				return true
			}
		}
	}
	return false
}

// things are the fields of a culprit by which a headline can name it otherwise than by its rank.
var things = []string{"host", "node", "gpu", "pod", "pod_name", "mount", "device", "container"}

// agrees reports whether the headline names the rank that the verdict accuses, or a thing of it.
func agrees(v *verdict.Verdict) bool {
	rank := v.Culprit["rank"]
	return rank == "" || namesRank(v.Headline, rank) || v.Culprit["pid"] != "" && strings.Contains(v.Headline, "pid "+v.Culprit["pid"]) ||
		slices.ContainsFunc(things, func(field string) bool {
			return v.Culprit[field] != "" && strings.Contains(v.Headline, v.Culprit[field])
		})
}

// Programs read the culprit, and people the headline. Where a headline names nobody, such as that ranks wait for each other, no rank
// is accused. So it is with what each pattern tells of its stories, and of them where an attribute of the records is missing. What the join
// finds (nccl.collective) it says as a whole.
func TestHeadlineAndCulpritNameTheSame(t *testing.T) {
	checked, nobody := 0, 0
	each(t, func(t *testing.T, s told) {
		if !strings.Contains(s.Name, "/testdata/") { // of the engine's operators: the rules are their own
			return
		}
		accuses := false
		check := func(missing string) {
			s.eachVerdict(t, func(_ time.Time, v verdict.Verdict) {
				checked++
				if v.Culprit["rank"] == "" {
					nobody++
					return
				}
				accuses = true
				require.True(t, agrees(&v), "%s accuses rank %s without %q: %s", v.Pattern, v.Culprit["rank"], missing, v.Headline)
			})
		}
		check("")
		if !accuses {
			return
		}
		for i, key := range s.attributes() {
			if strings.HasPrefix(key, "nccl.collective.") || (i+len(s.Name))%4 != 0 && !*every {
				continue
			}
			s.MarkLogs = func(ld plog.Logs) {
				for _, r := range ld.ResourceLogs().All() {
					for _, scope := range r.ScopeLogs().All() {
						for _, record := range scope.LogRecords().All() {
							record.Attributes().Remove(key)
						}
					}
				}
			}
			check(key)
		}
	})
	t.Logf("%d revisions, of which %d name no rank", checked, nobody)
	require.Greater(t, checked-nobody, 2000, "the test sees something")
}

// attributes are those of its records.
func (s told) attributes() []string {
	all := map[string]bool{}
	for i := range s.Input.Records {
		for key := range s.Input.Records[i].Attributes {
			all[key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// A verdict is told in another incident once its cause is known, or has turned out to be none. It does not come
// back to one that it has left.
func TestNoVerdictComesBackToAnIncidentThatItLeft(t *testing.T) {
	moved := 0
	each(t, func(t *testing.T, s told) {
		were := map[string][]string{}
		s.eachVerdict(t, func(_ time.Time, v verdict.Verdict) {
			here := were[v.ID]
			if len(here) > 0 && here[len(here)-1] == v.IncidentID {
				return
			}
			require.NotContains(t, here, v.IncidentID, "revision %d of %s: %s", v.Revision, v.ID, v.Headline)
			if were[v.ID] = append(here, v.IncidentID); len(here) > 0 {
				moved++
			}
		})
	})
	require.Greater(t, moved, 20, "the test sees something")
}
