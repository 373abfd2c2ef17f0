package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Fed is what came of the events and metrics that a pattern reads.
type Fed struct {
	Pattern   string
	Came, All int       // events and metrics, by their names
	Last      time.Time // event time, zero for never
}

// FedOf folds the pieces of evidence of each pattern, by name. Of a piece that reads several,
// one is enough, and which came is not known. Never are the names that no piece had.
func FedOf(feeds []Feed) (patterns []Fed, never []string) {
	last, came := map[string]time.Time{}, map[string]bool{}
	reads := map[string]map[string]bool{} // by pattern
	for _, f := range feeds {
		if reads[f.Pattern] == nil {
			reads[f.Pattern] = map[string]bool{}
		}
		for _, name := range f.Reads {
			reads[f.Pattern][name] = true
			came[name] = came[name] || f.Last != nil
		}
		if f.Last != nil && f.Last.After(last[f.Pattern]) {
			last[f.Pattern] = *f.Last
		}
	}
	for pattern, names := range reads {
		one := Fed{Pattern: pattern, All: len(names), Last: last[pattern]}
		for name := range names {
			if came[name] {
				one.Came++
			}
		}
		patterns = append(patterns, one)
	}
	slices.SortFunc(patterns, func(a, b Fed) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return patterns, slices.DeleteFunc(slices.Sorted(maps.Keys(came)), func(name string) bool { return came[name] })
}
