package stall

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Bounds of what is learned of a job.
const (
	repeats    = 3    // pauses of one kind that make it usual: one or two may be the start, or an accident
	mostPauses = 8    // remembered of one kind, the longest
	mostKinds  = 4096 // of a job
)

// phases learns how long the healthy pauses of a job are. A pause is of one kind: which
// rank made the others wait, and how. What rank 0 needs for a checkpoint says nothing of a
// rank 2 that sleeps.
type phases struct {
	traffic int // snapshots in which data moved
	pauses  map[kindOfPause][]pause
	common  map[socketstall.Activity]shared
}

type kindOfPause struct {
	rank int // Unknown of one on another node
	how  socketstall.Activity
}

// pause is one that ended by itself.
type pause struct{ from, to time.Duration }

func (p pause) length() time.Duration { return p.to - p.from }

// shared is the usual pause of all ranks together, worked out at some moment.
type shared struct{ at, usual time.Duration }

// refreshed is how old a shared pause may be.
const refreshed = time.Minute

// known reports whether the phases of the job are learned.
func (p *phases) known(o *Options) bool { return p.traffic >= o.PhaseLearning }

// usual is the pause to expect of a rank that does this.
func (p *phases) usual(rank int, how socketstall.Activity, now time.Duration, o *Options) time.Duration {
	if !p.known(o) {
		return o.PhaseUnlearned
	}
	own := usualOf(p.pauses[kindOfPause{rank, how}], now-o.PhaseMemory)
	return max(own, p.shared(how, now, o))
}

// usualOf is the length that several pauses reached since then.
func usualOf(pauses []pause, since time.Duration) time.Duration {
	lengths := make([]time.Duration, 0, len(pauses))
	for _, one := range pauses {
		if one.to >= since {
			lengths = append(lengths, one.length())
		}
	}
	if len(lengths) < repeats {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-repeats]
}

// shared is the pause that several ranks make: now this one is late, now that one.
func (p *phases) shared(how socketstall.Activity, now time.Duration, o *Options) time.Duration {
	if known, is := p.common[how]; is && now-known.at < refreshed {
		return known.usual
	}
	type of struct {
		rank   int
		length time.Duration
	}
	var all []of
	for kind, pauses := range p.pauses {
		for _, one := range pauses {
			if kind.how == how && one.to >= now-o.PhaseMemory {
				all = append(all, of{kind.rank, one.length()})
			}
		}
	}
	slices.SortFunc(all, func(a, b of) int { return cmp.Or(cmp.Compare(b.length, a.length), cmp.Compare(a.rank, b.rank)) })
	usual := time.Duration(0)
	ranks := map[int]bool{}
	for i, one := range all {
		if ranks[one.rank] = true; i+1 >= repeats && len(ranks) > 1 {
			usual = one.length
			break
		}
	}
	if p.common == nil {
		p.common = map[socketstall.Activity]shared{}
	}
	p.common[how] = shared{now, usual}
	return usual
}

// moved notes a snapshot in which data of the job moved.
func (p *phases) moved() { p.traffic++ }

// learn takes a healthy pause. What overlaps with the last is the same, told by another
// queue.
func (p *phases) learn(rank int, how socketstall.Activity, one pause) {
	key := kindOfPause{rank, how}
	known := p.pauses[key]
	if p.pauses == nil {
		p.pauses = map[kindOfPause][]pause{}
	}
	if len(known) == 0 && len(p.pauses) >= mostKinds {
		return
	}
	p.pauses[key] = enter(known, one)
	delete(p.common, how)
}

// enter adds a pause in the order of their ends, and drops the shortest where there are
// too many.
func enter(known []pause, one pause) []pause {
	for i := range known {
		if before := &known[i]; one.from < before.to && before.from < one.to {
			if one.length() > before.length() {
				*before = one
			}
			return known
		}
	}
	known = append(known, one)
	if len(known) > mostPauses {
		shortest := 0
		for i := range known {
			if known[i].length() < known[shortest].length() {
				shortest = i
			}
		}
		known = slices.Delete(known, shortest, shortest+1)
	}
	return known
}
