package fault

import (
	"slices"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// byTrust has one T for each trust.
type byTrust[T any] [verdict.Proven - verdict.Foreign + 1]T

func (b *byTrust[T]) of(trust verdict.Trust) *T { return &b[trust-verdict.Foreign] }

// trusts is a set of trusts.
type trusts uint8

func (s *trusts) add(trust verdict.Trust)     { *s |= 1 << (trust - verdict.Foreign) }
func (s trusts) has(trust verdict.Trust) bool { return s&(1<<(trust-verdict.Foreign)) != 0 }

// trusted reports whether m is of at least that trust in this fault.
func (t *trail) trusted(w *Evidence, m *Mark, least verdict.Trust) bool {
	if w.Believed {
		least = min(least, verdict.Claimed)
	}
	return m.Trust >= least && (w.join < 0 || t.began >= least || t.trust(w, m) >= least)
}

// trust is how far m can be trusted to belong to this fault: as far as itself, and as
// the evidence whose fields it joined by. A true record proves nothing about a fault
// that a forged one led it to.
func (t *trail) trust(w *Evidence, m *Mark) verdict.Trust {
	if w.join < 0 || t.began >= m.Trust {
		return m.Trust
	}
	key, _ := Tuple(m.Values, w.Match)
	best := verdict.Foreign
	for i, other := range t.rule.Watches {
		for j := range t.marks[i] {
			led := &t.marks[i][j]
			if other.join >= 0 || led.Trust <= best {
				continue
			}
			if values, ok := Tuple(led.Values, w.Match); ok && values == key && (!w.OfProcess || t.rule.process(led.Values).Is(t.rule.process(m.Values))) {
				best = led.Trust
			}
		}
	}
	return min(m.Trust, best)
}

// ranksOf returns the ranks of marks of at least that trust.
func (t *trail) ranksOf(least verdict.Trust) []int {
	var ranks []int
	for trust := verdict.Proven; trust >= least; trust-- {
		if more := *t.ranks.of(trust); ranks == nil {
			ranks = more
		} else {
			ranks = union(ranks, more)
		}
	}
	return ranks
}

// weakest returns the oldest of the marks that are trusted least, -1 where all are trusted
// alike.
func weakest(marks []Mark) int {
	least := slices.MinFunc(marks, func(a, b Mark) int { return int(a.Trust) - int(b.Trust) }).Trust
	if !slices.ContainsFunc(marks, func(m Mark) bool { return m.Trust != least }) {
		return -1
	}
	return slices.IndexFunc(marks, func(m Mark) bool { return m.Trust == least })
}

// total adds up the marks of at least that trust.
func total(marks []Mark, least verdict.Trust) (sum float64) {
	for i := range marks {
		if marks[i].Trust >= least {
			sum += marks[i].Count
		}
	}
	return sum
}
