package story

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What a verdict shows it does not list as not observed, unless its confidence asks for more of it;
// and it misses no stack of a process that has ended.
func TestNothingIsBothSeenAndNotSeen(t *testing.T) {
	details, dead := 0, 0
	each(t, func(t *testing.T, s told) {
		decides := map[string][]string{}
		for _, r := range s.rules {
			decides[r.Name] = slices.Concat(r.Full.Names(), r.Partial.Names())
		}
		for _, v := range s.playback(t, func(e *engine.Engine) *engine.Engine { return e }) {
			seen := func(name string) bool {
				return slices.ContainsFunc(v.Evidence, func(e verdict.Evidence) bool { return e.Name == name })
			}
			for _, e := range v.Evidence {
				if e.Trust < v.Trust && !slices.Contains(decides[v.Pattern], e.Name) {
					details++
				}
			}
			ended := v.Pattern == "nccl_socket_stall" && seen("death") && !seen("withdrawn")
			if ended {
				dead++
			}
			for _, m := range v.Missing {
				require.False(t, seen(m.Name) && !slices.Contains(decides[v.Pattern], m.Name), "%s: %s", v.Pattern, m.Text)
				require.False(t, ended && m.Name == "stack", "%s: %s", v.Headline, m.Text)
			}
		}
	})
	require.Greater(t, details, 10, "the test sees something")
	require.Greater(t, dead, 2, "the test sees something")
}

// A count is of what its line says: links of five GPUs are not six failures of the
// first.
func TestACountIsOfWhatItsLineShows(t *testing.T) {
	lines := 0
	each(t, func(t *testing.T, s told) {
		for _, v := range s.playback(t, func(e *engine.Engine) *engine.Engine { return e }) {
			shown := map[string]bool{}
			for _, e := range v.Evidence {
				require.False(t, shown[e.Name+e.Shows], "%s: %s stands twice", v.Pattern, e.Shows)
				shown[e.Name+e.Shows] = true
			}
			if s.Name != "fabric_fault/testdata/links_of_five_gpus_fail.txtar" || v.Pattern != "fabric_fault" || v.Resolved != nil || len(v.Evidence) < 4 {
				continue
			}
			var counts []uint64
			for _, e := range v.Evidence {
				counts = append(counts, e.Count)
			}
			lines++
			require.Equal(t, []uint64{2, 1, 1, 2}, counts)
		}
	})
	require.Positive(t, lines)
}
