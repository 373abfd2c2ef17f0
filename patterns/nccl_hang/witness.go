package ncclhang

import (
	"cmp"
	"strings"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Words for those that tell of a rank.
const (
	byCalls   = "calls"
	bySockets = "sockets"
	byDumps   = "dumps"
	byNone    = "none"
)

// listen notes who has told of the rank that each finding names: records of its calls, of its
// sockets that stall at that moment, and its dumps. What may be of another job counts: that a rank was not seen
// is said only where that is sure.
func (j *Join) listen(name, job, domain, begun string, at int64, findings []Finding) {
	seen := map[int]map[string]bool{}
	for i := range findings {
		if rank := findings[i].Rank(); rank >= 0 {
			seen[rank] = map[string]bool{}
		}
	}
	if len(seen) == 0 {
		return
	}
	note := func(rank int, by string) {
		if told := seen[rank]; told != nil {
			told[by] = true
		}
	}
	same := func(otherName, otherJob, otherDomain, otherBegun string) bool {
		return otherName == name || may(otherJob, job) && may(otherDomain, domain) && may(otherBegun, begun)
	}
	for _, r := range j.calls.runs {
		if same(r.name, r.job, r.domain, r.begun) {
			for _, c := range r.callers {
				if len(c.places) > 0 {
					note(c.rank, byCalls)
				}
			}
		}
	}
	for stalls := range j.book.Jobs() {
		if same(stalls.Name, stalls.ID, stalls.Domain, stalls.Run) {
			for _, p := range stalls.Processes {
				if p.OpenAt(at) {
					note(p.Rank, bySockets)
				}
			}
		}
	}
	for _, r := range j.runs {
		if same(r.name, r.job, r.domain, r.begun) {
			for rank := range seen {
				if _, spoke := r.ranks[rank]; spoke {
					note(rank, byDumps)
				}
			}
		}
	}
	for i := range findings {
		if told := seen[findings[i].Rank()]; told != nil {
			findings[i].Witnesses = inOrder(told)
		}
	}
}

func inOrder(told map[string]bool) string {
	var all []string
	for _, by := range []string{byCalls, bySockets, byDumps} {
		if told[by] {
			all = append(all, by)
		}
	}
	return cmp.Or(strings.Join(all, ", "), byNone)
}

// speaks has the calls of a job judged again when a socket of a rank that was named is the first to
// tell of it.
func (b *callBook) speaks(stall *socketstall.Record, now int64) {
	r := b.runs[stall.Job]
	if r == nil || stall.Ended() || r.told == nil || r.told.Rank != stall.Rank || strings.Contains(r.told.Witnesses, bySockets) {
		return
	}
	r.heard = now
	if r.pending == 0 {
		r.pending = now
	}
}
