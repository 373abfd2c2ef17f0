package rule

import (
	"fmt"
	"slices"
	"strings"
)

// Suggest says which of names was probably meant by name, or which there are.
func Suggest(name string, names []string) string { return suggest(name, names) }

// suggest says which of names was probably meant by name.
func suggest(name string, names []string) string {
	near := nearest(name, names, len(name)/2)
	part := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return len(name) < 3 || !strings.Contains(n, name) })
	switch {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(part) > 0:
		return "did you mean " + strings.Join(part, " or ") + "?"
	case len(names) == 0:
		return "none is defined here"
	default:
		return "use one of " + strings.Join(names, ", ")
	}
}

// nearest returns the name that is most like name, "" when all differ in more than most
// letters.
func nearest(name string, names []string, most int) string {
	best, least := "", most+1
	for _, candidate := range names {
		d := distance(name, candidate)
		if len(candidate) >= len(name)/2 && candidate != "" && strings.HasPrefix(name, candidate) {
			d = 1 // hostname means host
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best
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
