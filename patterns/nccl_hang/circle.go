package ncclhang

import (
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

const (
	doubtCircle = "that these ranks wait in these calls, and in no others, is told by the calls alone"
	// mostLinks bounds how many waits of a circle are written out.
	mostLinks = 8
)

// circles puts one finding in place of those whose ranks wait for each other: each has made a call
// that another lacks, and that one a call that it lacks itself. None of them is to blame alone.
// Findings whose ranks are only known to wait themselves are left out.
func circles(findings []*Finding, where func(rank int) socketstall.Identity) []*Finding {
	waitsIn, passed := waitsOf(findings), make([]int, len(findings)) // in which walk, 0: in none
	var made []*Finding
	in := map[*Finding]bool{}
	for start := range findings {
		at := start
		for at != unvisited && passed[at] == 0 {
			passed[at] = start + 1
			at = cause(findings, waitsIn, at)
		}
		if at == unvisited || passed[at] != start+1 {
			continue
		}
		circle := []*Finding{findings[at]}
		for next := cause(findings, waitsIn, at); next != at; next = cause(findings, waitsIn, next) {
			circle = append(circle, findings[next])
		}
		if !slices.ContainsFunc(circle, (*Finding).breaks) {
			made = append(made, inCircle(circle, where))
			for _, f := range circle {
				in[f] = true
			}
		}
	}
	return append(slices.DeleteFunc(findings, func(f *Finding) bool { return f.wait || in[f] }), made...)
}

// moves reports whether those to blame make progress: what they have called, they need not wait in.
func (f *Finding) moves() bool { return f.Kind == Works || f.Pending }

// breaks reports whether a circle through the finding may be none: sends and receives are two for
// one wait, and numbers in a communicator are no ranks.
func (f *Finding) breaks() bool {
	return f.moves() || f.P2P || f.Local || f.Kind != NotCalled && f.Kind != NotEntered && f.Kind != NotInitialized
}

// inCircle is the finding of ranks that wait for each other: those to blame in each wait in the next.
func inCircle(circle []*Finding, where func(rank int) socketstall.Identity) *Finding {
	first := 0
	for i, f := range circle {
		if f.Since.Before(circle[first].Since) {
			first = i
		}
	}
	circle = slices.Concat(circle[first:], circle[:first])
	f := *circle[0]
	f.Kind, f.Culprits, f.Waiting, f.NoDump, f.Last, f.Because = Circle, nil, nil, nil, nil, nil
	f.Does, f.CalledBy, f.Called, f.Behind, f.Host, f.rank, f.wait = "", "", 0, 0, socketstall.Identity{}, -1, false
	last := circle[len(circle)-1]
	f.Detail = subject(last.Culprits)
	for i, link := range circle {
		f.Waited = max(f.Waited, link.Waited)
		f.Waiting = append(append(f.Waiting, link.Waiting...), link.Culprits...)
		for _, because := range link.Because {
			if !slices.Contains(f.Because, because) {
				f.doubt(link.Sure, because)
			}
		}
		if i < mostLinks {
			if i > 0 {
				f.Detail += ", which"
			}
			f.Detail += plural(circle[(i+len(circle)-1)%len(circle)].Culprits, " waits", " wait") + " in " + link.call() + " of " + link.GroupName() + " for " + subject(link.Culprits)
		}
	}
	f.Detail = socketstall.Clip(f.Detail + ": the ranks do not call these in one order")
	f.doubt(Likely, doubtCircle)
	slices.Sort(f.Waiting)
	f.Waiting = slices.Compact(f.Waiting)
	f.Affected, f.Downstream = nil, len(circle)-1
	between(&f, slices.Values(f.Waiting), where)
	return &f
}
