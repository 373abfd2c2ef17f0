package ncclhang

import (
	"cmp"
	"fmt"
	"slices"
)

// rootsOf keeps the findings that no other explains. A culprit that waits itself,
// in another group or for another rank, is where the search goes on: what it
// waits for is the cause. Of findings that lead to each other one is kept: whose
// ranks to blame make progress, or that began first.
func rootsOf(findings []*Finding) []Finding {
	waitsIn := waitsOf(findings)
	roots := make([]int, len(findings)) // finding → its root
	for i := range roots {
		roots[i] = unvisited
	}
	for i := range findings {
		follow(findings, waitsIn, roots, i)
	}
	oneForEach(findings, roots)
	return gather(findings, roots)
}

// waitsOf are the findings in which each rank waits.
func waitsOf(findings []*Finding) map[int][]int {
	waitsIn := map[int][]int{}
	for i, f := range findings {
		for _, rank := range f.Waiting {
			if len(waitsIn[rank]) < maxWaits {
				waitsIn[rank] = append(waitsIn[rank], i)
			}
		}
	}
	return waitsIn
}

// oneForEach leaves one root for ranks that are to blame in several groups: they
// stopped once. It is the one in which others have waited longest.
func oneForEach(findings []*Finding, roots []int) {
	first := map[string]int{}
	for i, f := range findings {
		if roots[i] != i || len(f.Culprits) == 0 {
			continue
		}
		blamed := fmt.Sprint(f.Culprits)
		if best, found := first[blamed]; !found || f.Since.Before(findings[best].Since) {
			first[blamed] = i
		}
	}
	instead := map[int]int{}
	for i, f := range findings {
		if best, found := first[fmt.Sprint(f.Culprits)]; found && roots[i] == i && best != i {
			instead[i] = best
		}
	}
	for i, root := range roots {
		if best, found := instead[root]; found {
			roots[i] = best
		}
	}
}

const unvisited = -1

// maxWaits bounds the findings looked at for what one rank waits in. A rank waits
// in one collective, and in those of other groups that it had begun before.
const maxWaits = 64

// follow walks from a finding to its cause, and remembers the cause for all it
// passed. It does not recurse: a pipeline of a thousand stages is a thousand
// steps long.
func follow(findings []*Finding, waitsIn map[int][]int, roots []int, start int) {
	var path []int
	onPath := map[int]bool{}
	at := start
	for roots[at] == unvisited && !onPath[at] {
		path, onPath[at] = append(path, at), true
		next := cause(findings, waitsIn, at)
		if next == unvisited {
			break
		}
		at = next
	}
	root := roots[at]
	if root == unvisited {
		root = at
		if at != path[len(path)-1] {
			root = earliest(findings, path[slices.Index(path, at):])
		}
	}
	for _, i := range path {
		roots[i] = root
	}
}

// cause returns the finding that a culprit of this one waits in, unvisited where
// at least one culprit waits in nothing else: that one is to blame itself.
func cause(findings []*Finding, waitsIn map[int][]int, at int) int {
	found := unvisited
	if findings[at].elsewhere {
		return found
	}
	for _, culprit := range findings[at].Culprits {
		waits := waitsIn[culprit]
		if i := slices.IndexFunc(waits, func(i int) bool { return i != at && accuses(findings[i]) }); i >= 0 {
			if found == unvisited {
				found = waits[i]
			}
			continue
		}
		return unvisited
	}
	return found
}

// accuses reports whether a finding leads on: one that stands still on its own
// explains why its ranks are nowhere else just as well, and so does one that is healthy.
func accuses(f *Finding) bool {
	return f.Sure != Unsure || f.Pending || f.Kind == Stuck || f.Kind == NoDump || f.Kind == NoCall
}

func earliest(findings []*Finding, circle []int) int {
	return slices.MinFunc(circle, func(a, b int) int {
		if mine, other := findings[a].moves(), findings[b].moves(); mine != other {
			return map[bool]int{true: -1, false: 1}[mine]
		}
		return cmp.Or(findings[a].Since.Compare(findings[b].Since), cmp.Compare(a, b))
	})
}

// gather adds to each root whom it affects, and sorts: the surest first, then
// the one that affects most.
func gather(findings []*Finding, roots []int) []Finding {
	affected := map[int]map[int]struct{}{}
	for i, f := range findings {
		root := roots[i]
		if affected[root] == nil {
			affected[root] = map[int]struct{}{}
		}
		for _, rank := range f.Waiting {
			affected[root][rank] = struct{}{}
		}
		for _, rank := range f.Culprits {
			affected[root][rank] = struct{}{}
		}
		if root != i {
			findings[root].Downstream++
		}
	}
	var kept []Finding
	for i, f := range findings {
		if roots[i] != i {
			continue
		}
		for rank := range affected[i] {
			f.Affected = append(f.Affected, rank)
		}
		slices.Sort(f.Affected)
		f.Affected = slices.Compact(f.Affected)
		kept = append(kept, *f)
	}
	degree := []Sureness{Certain, Likely, Unsure}
	slices.SortStableFunc(kept, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(degree, a.Sure), slices.Index(degree, b.Sure)), cmp.Compare(len(b.Affected), len(a.Affected)), a.Since.Compare(b.Since))
	})
	return kept
}
