package flightrecorder

import (
	"fmt"
	"slices"
	"strings"
)

// FormatRanks writes a set of ranks in short: "0-3,8", "0-120/8" for every
// eighth. The groups of tensor, pipeline and data parallelism are such steps, so
// a group of 16,384 ranks is a few characters. Empty where it takes more than
// most bytes.
func FormatRanks(ranks []int, most int) string {
	sorted := slices.Clone(ranks)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	var b strings.Builder
	for len(sorted) > 0 {
		n := run(sorted)
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		writeRun(&b, sorted[:n])
		sorted = sorted[n:]
		if b.Len() > most {
			return ""
		}
	}
	return b.String()
}

// run returns how many of the first ranks make one part.
func run(sorted []int) int {
	if len(sorted) < 3 {
		return 1
	}
	step := sorted[1] - sorted[0]
	n := 2
	for n < len(sorted) && sorted[n]-sorted[n-1] == step {
		n++
	}
	if n < 3 {
		return 1
	}
	return n
}

func writeRun(b *strings.Builder, ranks []int) {
	first, last := ranks[0], ranks[len(ranks)-1]
	switch {
	case len(ranks) == 1:
		fmt.Fprintf(b, "%d", first)
	case ranks[1]-first == 1:
		fmt.Fprintf(b, "%d-%d", first, last)
	default:
		fmt.Fprintf(b, "%d-%d/%d", first, last, ranks[1]-first)
	}
}
