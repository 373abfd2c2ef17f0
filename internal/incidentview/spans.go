package incidentview

import (
	"iter"
	"strconv"
	"strings"
)

// Spans are the ranges: first and last rank of each.
func (r Ranks) Spans() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for part := range strings.SplitSeq(r.Ranges, ",") {
			first, last, isRange := strings.Cut(part, "-")
			from, err := strconv.Atoi(first)
			to := from
			if err == nil && isRange {
				to, err = strconv.Atoi(last)
			}
			if err == nil && from >= 0 && to >= from && !yield(from, to) {
				return
			}
		}
	}
}
