package rule

import (
	"fmt"
	"strings"
)

// Suggest says which of names was probably meant by name, or which there are.
func Suggest(name string, names []string) string { return suggest(name, names) }

// suggest says which of names was probably meant by name.
func suggest(name string, names []string) string {
	best, least := "", len(name)/2+1
	for _, candidate := range names {
		d := distance(name, candidate)
		if candidate != "" && strings.HasPrefix(name, candidate) {
			d = 1 // hostname means host
		}
		if d < least {
			best, least = candidate, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("did you mean %q?", best)
	case len(names) == 0:
		return "none is defined here"
	default:
		return "use one of " + strings.Join(names, ", ")
	}
}

// distance is the Levenshtein distance of the first 64 bytes of a and b.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
