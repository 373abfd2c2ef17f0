package ncclhang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// mismatch finds the first collective whose signature differs between ranks. Its
// cost is one comparison for each entry of each rank whose history is not the one
// before it: ranks that did the same share theirs.
func (g *group) mismatch() (seq int64, found bool) {
	var different []*dump
	for _, d := range g.dumps {
		if len(d.history) > 0 && (len(different) == 0 || !d.sameHistory(different[len(different)-1])) {
			different = append(different, d)
		}
	}
	if len(different) < 2 {
		return 0, false
	}
	low, high := span(different)
	expected := make([]uint32, high-low+1)
	first := high + 1
	for _, d := range different {
		if i, differs := compare(expected[:first-low], d, low); differs {
			first = low + int64(i)
		}
	}
	return first, first <= high
}

// sameHistory reports whether both dumps share one history, under the same numbers.
func (d *dump) sameHistory(other *dump) bool {
	return d.first == other.first && len(d.history) == len(other.history) && &d.history[0] == &other.history[0]
}

// span returns the numbers that histories cover, at most twice as many as one can
// hold.
func span(dumps []*dump) (low, high int64) {
	low, high = 1<<62, -1
	for _, d := range dumps {
		low, high = min(low, d.first), max(high, d.first+int64(len(d.history))-1)
	}
	return max(low, high-2*maxHistory), high
}

// compare holds the history of d against what was expected from low on, fills in
// what nobody has said yet, and returns where it first differs.
func compare(expected []uint32, d *dump, low int64) (int, bool) {
	history, offset := d.history, d.first-low
	if offset < 0 {
		if -offset >= int64(len(history)) {
			return 0, false
		}
		history, offset = history[-offset:], 0
	}
	if offset >= int64(len(expected)) {
		return 0, false
	}
	expected = expected[offset:]
	n := min(len(history), len(expected))
	history, expected = history[:n], expected[:n]
	if slices.Equal(history, expected) {
		return 0, false
	}
	for i, hash := range history {
		switch {
		case hash == 0 || hash == expected[i]:
		case expected[i] == 0:
			expected[i] = hash
		default:
			return int(offset) + i, true
		}
	}
	return 0, false
}

// votes are the ranks by what they did under that number.
func (g *group) votes(seq int64) map[uint32][]int {
	votes := map[uint32][]int{}
	for _, d := range g.dumps {
		if hash := d.hash(seq); hash != 0 {
			votes[hash] = append(votes[hash], d.rank)
		}
	}
	return votes
}

// winner returns what most ranks did, and whether they are more than half. Of
// equals the one that the lowest rank did.
func winner(votes map[uint32][]int) (hash uint32, majority bool) {
	total := 0
	for h, ranks := range votes {
		total += len(ranks)
		best := votes[hash]
		if hash == 0 || len(ranks) > len(best) || len(ranks) == len(best) && ranks[0] < best[0] {
			hash = h
		}
	}
	return hash, 2*len(votes[hash]) > total
}

// mismatchAt explains a collective under whose number ranks did different
// things. Where more than half agree the others are the culprits.
func (g *group) mismatchAt(seq int64, waiting []*dump) *Finding {
	votes := g.votes(seq)
	most, majority := winner(votes)
	f := &Finding{Kind: Mismatch, Sure: Certain, Seq: seq, Operation: g.operationAt(seq, nil), NoDump: g.silent()}
	odd := g.oddest(votes, most)
	f.What, f.Detail = g.difference(seq, votes, most, odd)
	if majority {
		for hash, ranks := range votes {
			if hash != most {
				f.Culprits = append(f.Culprits, ranks...)
			}
		}
		slices.Sort(f.Culprits)
	} else {
		f.doubt(Likely, "no signature has a majority: which side is wrong cannot be told")
	}
	for _, d := range waiting {
		if !has(f.Culprits, d.rank) {
			f.Waiting = append(f.Waiting, d.rank)
		}
	}
	if !g.blocks(seq, waiting) {
		f.doubt(Unsure, "all ranks went on after it")
	}
	if len(f.NoDump) > 0 {
		f.doubt(Likely, subject(f.NoDump)+" sent no dump")
	}
	return f
}

// oddest returns the signature other than most that the lowest rank has.
func (g *group) oddest(votes map[uint32][]int, most uint32) (odd uint32) {
	for hash, ranks := range votes {
		if hash != most && (odd == 0 || ranks[0] < votes[odd][0]) {
			odd = hash
		}
	}
	return odd
}

// difference says in what two signatures differ.
func (g *group) difference(seq int64, votes map[uint32][]int, most, odd uint32) (what, detail string) {
	theirs, mine := g.run.words[most], g.run.words[odd]
	what = differs(theirs, mine)
	if what == "operation" && g.swapped(seq, votes[most][0], votes[odd][0]) {
		what = "order"
	}
	var parts []string
	for _, hash := range slices.SortedFunc(maps.Keys(votes), func(a, b uint32) int { return votes[a][0] - votes[b][0] }) {
		words := g.run.words[hash]
		if words == "" {
			words = "another operation"
		}
		if parts = append(parts, subject(votes[hash])+": "+words); len(parts) == 4 && len(votes) > 4 {
			parts = append(parts, fmt.Sprintf("%d more", len(votes)-4))
			break
		}
	}
	return what, socketstall.Clip(strings.Join(parts, "; "))
}

// differs names the first thing in which two signatures, "all_reduce [[4]] ->
// [[4]] of Float -> Float", differ.
func differs(a, b string) string {
	opA, restA, _ := strings.Cut(a, " ")
	opB, restB, _ := strings.Cut(b, " ")
	if opA != opB || a == "" || b == "" {
		return "operation"
	}
	sizesA, _, _ := strings.Cut(restA, " of ")
	sizesB, _, _ := strings.Cut(restB, " of ")
	if sizesA != sizesB {
		return "sizes"
	}
	return "types"
}

// swapped reports whether one rank did at seq what the other did next, and the
// other way round.
func (g *group) swapped(seq int64, a, b int) bool {
	x, y := g.dump(a), g.dump(b)
	later := x.hash(seq+1) == y.hash(seq) && y.hash(seq+1) == x.hash(seq)
	oneStep := x.hash(seq+1) == y.hash(seq) || y.hash(seq+1) == x.hash(seq)
	return later || oneStep && (x.hash(seq+1) == 0 || y.hash(seq+1) == 0)
}
