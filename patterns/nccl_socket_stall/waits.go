package ncclsocketstall

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// mostEdges is how long the text of all waits is: the engine keeps as much of a field.
const mostEdges = 256

// waits are who waits for whom, folded: the ranks whose waits lead to the one that is named,
// what that one itself waits for, and of the others where their waits lead.
func (g *graph) waits(c *conclusion) string {
	named, target := g.named(c)
	led, direct := g.leading(named)
	list := []verdict.Wait{}
	add := func(who, direct []string, target, what string) {
		if len(who) > 0 && target != "" {
			list = append(list, g.wait(who, direct, target, what))
		}
	}
	add(led, direct, target, cmp.Or(g.what(direct, named), "data"))
	if c.Stall != nil && (c.Held == heldPath || c.Held == heldRefused || c.nobody() && !c.several()) {
		add([]string{c.Culprit}, nil, g.farOf(c), whatOf(c.Stall))
	}
	if c.Stall == nil && c.Held == heldDead {
		add([]string{c.Culprit}, nil, g.farOf(c), "data")
	}
	known := map[string]bool{}
	for _, key := range slices.Concat(named, led) {
		known[key] = true
	}
	elsewhere := g.elsewhere(known)
	for _, target := range slices.Sorted(maps.Keys(elsewhere)) {
		add(elsewhere[target], nil, target, "data")
	}
	return verdict.WriteWaits(list, mostEdges)
}

// named are the processes to which the waits of the others lead, and what they are called.
func (g *graph) named(c *conclusion) (keys []string, name string) {
	if !c.several() {
		return []string{c.Culprit}, verdict.RanksNamed([]int{g.procs[c.Culprit].Rank})
	}
	for key, p := range g.procs {
		if slices.Contains(c.Tied, p.Rank) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, verdict.RanksNamed(c.Tied)
}

// farOf is what is at the other end of the stall that a conclusion rests on.
func (g *graph) farOf(c *conclusion) string {
	if c.Far >= 0 && (c.Held == heldMissing || c.Held == heldDead) {
		return verdict.RanksNamed([]int{c.Far})
	}
	return g.nameOfPeer(c.Stall)
}

// leading are the processes whose waits lead to some, and which of them wait for one of
// those themselves.
func (g *graph) leading(to []string) (all, direct []string) {
	back := map[string][]string{}
	for from, edges := range g.out {
		for _, e := range edges {
			if e.to != "" {
				back[e.to] = append(back[e.to], from)
			}
		}
	}
	seen := map[string]bool{}
	for _, key := range to {
		seen[key] = true
	}
	for step, next := 0, to; len(next) > 0; step++ {
		var found []string
		for _, key := range next {
			for _, from := range back[key] {
				if !seen[from] {
					seen[from] = true
					found = append(found, from)
				}
			}
		}
		if step == 0 {
			direct = slices.Clone(found)
		}
		all, next = append(all, found...), found
	}
	return all, direct
}

// elsewhere are the processes that wait and are not known to wait for who is named, by where
// their waits lead.
func (g *graph) elsewhere(known map[string]bool) map[string][]string {
	groups, sinks := map[string][]string{}, map[string]string{}
	for _, from := range slices.Sorted(maps.Keys(g.out)) {
		if !known[from] {
			target := g.sink(from, sinks)
			groups[target] = append(groups[target], from)
		}
	}
	return groups
}

// sink is where the waits of a process lead: a rank, an address, or round in a circle. What
// is found is noted for all on the way.
func (g *graph) sink(at string, sinks map[string]string) (target string) {
	var way []string
	for seen := map[string]bool{}; target == ""; {
		way, seen[at] = append(way, at), true
		edges := g.out[at]
		switch {
		case sinks[at] != "":
			target = sinks[at]
		case len(edges) == 0:
			target = verdict.RanksNamed([]int{g.procs[at].Rank})
		case edges[0].to == "":
			target = g.nameOfPeer(edges[0].stall)
		case seen[edges[0].to]:
			target = verdict.EachOther
		default:
			at = edges[0].to
		}
	}
	for _, key := range way {
		sinks[key] = target
	}
	return target
}

// wait folds processes that wait for the same.
func (g *graph) wait(who, direct []string, target, what string) verdict.Wait {
	ranks := g.ranksOf(who)
	w := verdict.Wait{Ranks: ranks.String(), Count: len(ranks), For: target, What: what}
	if few := g.ranksOf(direct); len(few) < len(ranks) {
		w.Direct = few.String()
	}
	var since int64
	for _, key := range who {
		for _, e := range g.out[key] {
			since = earliest(since, e.stall.Onset)
		}
	}
	if since > 0 {
		w.Since = time.Unix(0, since)
	}
	return w
}

func (g *graph) ranksOf(keys []string) verdict.Ranks {
	ranks := make(verdict.Ranks, len(keys))
	for i, key := range keys {
		ranks[i] = g.procs[key].Rank
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// what is what those wait for that wait for one of some themselves.
func (g *graph) what(direct, named []string) string {
	counts := map[string]int{}
	for _, key := range direct {
		for _, e := range g.out[key] {
			if slices.Contains(named, e.to) {
				counts[whatOf(e.stall)]++
			}
		}
	}
	return slices.MaxFunc(append(slices.Sorted(maps.Keys(counts)), ""), func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
}

// whatOf is what a process waits for whose connection stalls.
func whatOf(s *socketstall.Stall) string {
	switch s.Cause {
	case socketstall.PeerNotReading:
		return "room to send"
	case socketstall.Network:
		return "packets that do not arrive"
	case socketstall.Connecting:
		if s.Error == "ECONNREFUSED" {
			return "a connection, refused"
		}
		return "a connection, unanswered"
	default:
		return "data"
	}
}
