package ncclhang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// quiet says how far the ranks of a run are, a line for each group, where nothing that
// they wait in makes a verdict.
func (r *run) quiet(findings []Finding, least time.Duration) []string {
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Sure != Unsure }) {
		return nil
	}
	var lines []string
	for _, g := range r.split() {
		lines = append(lines, g.quiet(least))
	}
	return lines
}

func (g *group) quiet(least time.Duration) string {
	if waits := g.waits(); len(waits) > 0 {
		return fmt.Sprintf("%s in %s%s: it is not known that %s waited for %s, which would make a verdict", waiters(waits), g.name(), g.unheard(), plural(waits, "it", "they"), least)
	}
	finished := map[int64][]int{} // number of the last collective → ranks
	for _, d := range g.dumps {
		finished[d.entered] = append(finished[d.entered], d.rank)
	}
	var parts []string
	for _, seq := range slices.SortedFunc(maps.Keys(finished), func(a, b int64) int { return cmp.Compare(b, a) }) {
		parts = append(parts, g.progress(finished[seq], seq))
	}
	return strings.Join(parts, ", ") + g.unheard() + "; nothing is pending"
}

// progress says what ranks finished last.
func (g *group) progress(ranks []int, seq int64) string {
	who := subject(ranks)
	if len(ranks) == len(g.members) && len(ranks) > 1 {
		who = verdict.All(len(ranks), "ranks")
	}
	if seq == 0 {
		return who + " entered no collective of " + g.name()
	}
	return fmt.Sprintf("%s finished %s #%d of %s", who, cmp.Or(g.operationAt(seq, nil), "collective"), seq, g.name())
}

func (g *group) name() string { return groupName(g.key.Group, g.key.Desc) }

// waits are the ranks that wait in an operation of any kind.
func (g *group) waits() (ranks []int) {
	for _, d := range g.dumps {
		if d.waits() {
			ranks = append(ranks, d.rank)
		}
	}
	return ranks
}

func (g *group) unheard() string {
	if silent := g.silent(); len(silent) > 0 {
		return "; " + subject(silent) + " sent no dump"
	}
	return ""
}
