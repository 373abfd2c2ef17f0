package incidentview

import (
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// RanksOf folds ranks into ranges, all of them.
func RanksOf(ranks []int) Ranks {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	return Ranks{Count: len(ranks), Ranges: verdict.Ranks(ranks).String()}
}

// shorten leaves the first ranges, and says how many ranks are in none of these.
func (r *Ranks) shorten() {
	first, listed, more, err := verdict.Cut(r.Ranges)
	if err != nil {
		*r = Ranks{Count: r.Count, More: r.Count} // it was read, and is none
		return
	}
	r.Ranges, r.Count = first, max(r.Count, listed+more)
	r.More = r.Count - listed
}

// Words are a few ranges, or else a count.
func (r Ranks) Words() string {
	const most = 3
	switch {
	case r.Count == 0:
		return ""
	case r.Count == 1 && r.Ranges != "":
		return "rank " + r.Ranges
	case strings.Count(r.Ranges, ",") < most && r.Ranges != "":
		return "ranks " + strings.ReplaceAll(r.Ranges, ",", ", ")
	}
	return verdict.Number(r.Count) + " ranks"
}
