package ncclhang

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

func unix(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// collective finds what is wrong with the collectives of the group: the earliest
// thing that keeps somebody waiting.
func (g *group) collective() *Finding {
	waiting := g.waiting()
	seq, differ := g.mismatch()
	behind := g.behind(waiting)
	if differ && (g.blocks(seq, waiting) || behind == nil && len(waiting) == 0) && (behind == nil || seq <= behind.Seq) {
		return g.mismatchAt(seq, waiting)
	}
	if behind != nil {
		return behind
	}
	if len(waiting) == 0 {
		return nil
	}
	return g.allEntered(waiting)
}

// waiting are the ranks that wait in a collective.
func (g *group) waiting() (waiting []*dump) {
	for _, d := range g.dumps {
		if d.waitsIn != nil {
			waiting = append(waiting, d)
		}
	}
	return waiting
}

// behind finds the ranks that have not entered what others wait in. They are
// those furthest behind: what the others lack, they may lack because of these.
func (g *group) behind(waiting []*dump) *Finding {
	lowest, late := int64(math.MaxInt64), []int(nil)
	quiet := false // a rank with a dump, but without an entry of this group
	for member, d := range g.each() {
		entered := int64(0)
		switch {
		case d == nil && !g.run.spoke(member):
			continue
		case d == nil:
		case d.waitsIn != nil:
			continue // it waits itself, so it is not what the others wait for
		default:
			entered = d.entered
		}
		if entered < lowest {
			lowest, late, quiet = entered, nil, false
		}
		if entered == lowest {
			late = append(late, member)
			quiet = quiet || d == nil || d.entries == 0
		}
	}
	if len(late) == 0 || !waitsAfter(lowest, waiting) {
		return nil
	}
	f := &Finding{Kind: NotEntered, Sure: Certain, Seq: lowest + 1, Culprits: late, Behind: g.furthest() - lowest, NoDump: g.silent()}
	f.Waiting = waitingFrom(f.Seq, waiting)
	f.Operation = g.operationAt(f.Seq, waiting)
	if len(f.NoDump) > 0 {
		f.doubt(Likely, fmt.Sprintf("%s sent no dump and may not have entered it either", subject(f.NoDump)))
	}
	if quiet && g.firstKnown() > 1 {
		f.doubt(Likely, "the dump of "+subject(late)+" has no entry of this group left")
	}
	return f
}

// firstWait returns the lowest number that somebody waits in.
func firstWait(waiting []*dump) int64 {
	first := int64(math.MaxInt64)
	for _, d := range waiting {
		first = min(first, d.waitsIn.seq)
	}
	return first
}

// waitsAfter reports whether somebody waits in a later collective.
func waitsAfter(seq int64, waiting []*dump) bool {
	return slices.ContainsFunc(waiting, func(d *dump) bool { return d.waitsIn.seq > seq })
}

// waitingFrom are the ranks that wait in that collective or a later one.
func waitingFrom(seq int64, waiting []*dump) (ranks []int) {
	for _, d := range waiting {
		if d.waitsIn.seq >= seq {
			ranks = append(ranks, d.rank)
		}
	}
	return ranks
}

func (g *group) furthest() (furthest int64) {
	for _, d := range g.dumps {
		furthest = max(furthest, d.entered)
	}
	return furthest
}

func (g *group) firstKnown() int64 {
	first := int64(math.MaxInt64)
	for _, d := range g.dumps {
		if len(d.history) > 0 {
			first = min(first, d.first)
		}
	}
	return first
}

// operationAt names the collective with that number, as most ranks have it.
func (g *group) operationAt(seq int64, waiting []*dump) string {
	if hash, _ := winner(g.votes(seq)); hash != 0 {
		name, _, _ := strings.Cut(g.run.words[hash], " ")
		if name != "" {
			return name
		}
	}
	for _, d := range waiting {
		if op := d.waitsIn; op.seq == seq {
			return op.name
		}
	}
	return ""
}

// allEntered explains a collective that every rank with a dump has entered.
func (g *group) allEntered(waiting []*dump) *Finding {
	seq := firstWait(waiting)
	f := &Finding{Kind: Stuck, Sure: Unsure, Seq: seq, Operation: g.operationAt(seq, waiting), NoDump: g.silent()}
	var started, scheduled []int
	for _, d := range waiting {
		if d.waitsIn.seq != seq {
			continue
		}
		f.Waiting = append(f.Waiting, d.rank)
		if d.waitsIn.state == "started" {
			started = append(started, d.rank)
		} else {
			scheduled = append(scheduled, d.rank)
		}
	}
	switch {
	case len(f.NoDump) > 0:
		f.Kind = NoDump
		f.Because = append(f.Because, doubtNoDump)
	case len(started) > 0 && len(scheduled) > 0:
		f.Kind, f.Culprits, f.Waiting, f.Sure = NotStarted, scheduled, started, Likely
		f.Because = append(f.Because, "the GPU may be about to begin it")
	default:
		f.Because = append(f.Because, doubtStuck)
	}
	return f
}

// blocks reports whether somebody is held up by a mismatch at seq: waits there or
// before, waits in a later one that differs too, or nobody got beyond it. One that
// all went past did no harm to progress.
func (g *group) blocks(seq int64, waiting []*dump) bool {
	first := firstWait(waiting)
	if len(waiting) > 0 && (first <= seq || len(g.votes(first)) > 1) {
		return true
	}
	return g.furthest() <= seq
}
