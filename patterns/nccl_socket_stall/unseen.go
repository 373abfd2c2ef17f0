package ncclsocketstall

import (
	"fmt"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// unseen is a process of which no record came, as far as it is known: its rank by who was
// at the other end before, or because it is the only one of the job that is missing; and
// its death.
func (g *graph) unseen(key string, e *edge, fs *facts) *conclusion {
	what := "waits for data from"
	switch {
	case e.strong || e.stall.Cause == socketstall.Network:
		what = "cannot send to"
	case e.stall.Cause == socketstall.Connecting:
		what = "cannot connect to"
	}
	c := &conclusion{Held: heldUnseen, Culprit: key, Stall: e.stall, Far: g.missingRank(e.stall)}
	name := address(e.stall.Peer, "the other end")
	if c.Far >= 0 {
		c.Held = heldMissing
		name = fmt.Sprintf("rank %d at %s", c.Far, name)
	}
	if c.Fact = fs.died(g.j.stalls.Name, c.Far, g.onset); c.Fact != nil {
		c.Held, c.Certain = heldDead, true
		c.Shows = fmt.Sprintf("%s %s %s, which has died", g.who(key), what, name)
		return c
	}
	c.Shows = fmt.Sprintf("%s %s %s, of which no record came", g.who(key), what, name)
	c.Missing = fmt.Sprintf("any record of %s: %s; %s itself is not ruled out", process(c.Far, name), g.whyUnseen(e.stall), g.who(key))
	return g.dataPath(c)
}

func process(far int, name string) string {
	if far >= 0 {
		return name
	}
	return "the process at " + name
}

// whyUnseen says why no record may have come from the other end. An end on the same host
// has the same agent.
func (g *graph) whyUnseen(s *socketstall.Stall) string {
	if s.PeerRank >= 0 {
		return "it has ended, or nothing of it stands still"
	}
	return "its node is down, runs no agent, sends to another gateway, or the process computes"
}

// missingRank is the rank at the other end of a stall of which no record came, Unknown
// where several can be it.
func (g *graph) missingRank(s *socketstall.Stall) int {
	if s.PeerRank >= 0 {
		return s.PeerRank
	}
	world := g.j.stalls.World
	seen := map[int]bool{}
	for _, p := range g.procs {
		seen[p.Rank] = true
	}
	if world != len(seen)+1 {
		return socketstall.Unknown
	}
	for rank := range world {
		if !seen[rank] {
			return rank
		}
	}
	return socketstall.Unknown
}

// died is how a rank of a job died: the newest death since shortly before the stall began,
// nil for none.
func (fs *facts) died(job string, rank int, onset int64) *fact {
	var last *fact
	for _, f := range fs.All {
		if f.Job != job || f.Rank != rank || rank < 0 || f.Kind != "process.exit" && f.Kind != "oom.kill" || f.Onset < onset-deathsBefore {
			continue
		}
		if last == nil || f.Onset > last.Onset || f.Onset == last.Onset && f.compare(last) < 0 {
			last = f
		}
	}
	return last
}

// deathsBefore is how long before a stall a death may be its cause: its peers notice it
// when they next use the connection.
const deathsBefore = int64(60e9)
