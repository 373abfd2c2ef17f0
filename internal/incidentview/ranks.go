package incidentview

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// RanksOf folds ranks into ranges.
func RanksOf(ranks []int) Ranks {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	var b strings.Builder
	for i := 0; i < len(ranks); {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if end > i {
			b.WriteString("-" + strconv.Itoa(ranks[end]))
		}
		i = end + 1
	}
	return Ranks{Count: len(ranks), Ranges: b.String()}
}

// Words are a few ranges, or else a count.
func (r Ranks) Words() string {
	const most = 3
	switch {
	case r.Count == 0:
		return ""
	case r.Count == 1:
		return "rank " + r.Ranges
	case strings.Count(r.Ranges, ",") < most:
		return "ranks " + strings.ReplaceAll(r.Ranges, ",", ", ")
	}
	return verdict.Number(r.Count) + " ranks"
}
