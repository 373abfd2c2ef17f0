package ncclsocketstall

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// unseen is a process of which no record came, as far as it is known: its rank by who was
// at the other end before, or because it is the only one of the job that is missing; and
// its death. Where several ranks may be at the other end, one that has died is told beside it:
// the job waits for that one in any case.
func (g *graph) unseen(key string, e *edge, fs *facts) *conclusion {
	what := "waits for data from"
	switch {
	case e.strong || e.stall.Cause == socketstall.Network:
		what = "cannot send to"
	case e.stall.Cause == socketstall.Connecting:
		what = "cannot connect to"
	}
	absent := g.absent(fs)
	c := &conclusion{Held: heldUnseen, Culprit: key, Stall: e.stall, Far: g.missingRank(e.stall, fs)}
	name := address(e.stall.Peer, "the other end")
	if c.Far >= 0 {
		c.Held = heldMissing
		name = fmt.Sprintf("rank %d at %s", c.Far, name)
	}
	c.Fact = absent.death(c.Far)
	if c.Fact != nil && c.Far >= 0 {
		c.Held, c.Certain = heldDead, true
		c.Shows = fmt.Sprintf("%s %s %s, which has died", g.who(key), what, name)
		return c
	}
	c.Shows = fmt.Sprintf("%s %s %s, of which no record came", g.who(key), what, name)
	if c.Fact != nil {
		c.Held, c.Certain = heldDead, absent.all
		c.Shows += fmt.Sprintf("; rank %d has died", c.Fact.Rank)
		if !absent.all {
			c.Missing = "which rank is at " + name + ": of several no record came"
		}
		return c
	}
	if c.Far < 0 {
		c.Absent = absent.several
	}
	c.Missing = fmt.Sprintf("any record of %s: %s; %s itself is not ruled out", process(c.Far, name), g.whyUnseen(e.stall), g.who(key))
	return g.dataPath(c)
}

// mayWork reports whether c names a process on another host that no agent watches, as far as is known: none but those of
// the ranks that are seen has watched the job. Whether that process computes, loads or saves is not known.
func (g *graph) mayWork(c *conclusion, fs *facts) bool {
	if c.Held != heldUnseen && c.Held != heldMissing || c.Stall.Cause != socketstall.Waiting || c.Stall.PeerRank >= 0 {
		return false
	}
	hosts := map[string]bool{}
	for _, p := range g.procs {
		hosts[p.Host] = true
	}
	for _, f := range fs.All {
		if f.Kind == socketstall.EventWatched && f.of(g.j.stalls.Name) && !hosts[f.Host] {
			return false
		}
	}
	return true
}

// outside is the rank that waits for a process which is no rank of the job: the others wait for that rank. Of several the
// first; nil for none.
func (g *graph) outside(now int64) *conclusion {
	key, waits := "", g.j.stalls.Outside(now)
	for other := range waits {
		if g.procs[other] != nil && (key == "" || g.before(other, key)) {
			key = other
		}
	}
	if key == "" {
		return nil
	}
	name := address(waits[key].Peer, "the other end")
	return &conclusion{
		Held: heldOutside, Culprit: key, Stall: waits[key],
		Shows:   fmt.Sprintf("%s waits for data from %s, which is no rank of the job", g.who(key), name),
		Missing: "what the process at " + name + " does: no agent watches one that is no rank",
	}
}

// health is until when what a conclusion says may be health; 0: it is not.
func (d *detector) health(g *graph, c *conclusion) int64 {
	switch {
	case c.Held == heldOutside:
		return g.onset + int64(d.outside)
	case c.Held == heldSilent && g.procs[c.Culprit].Doing.Asks() != "", g.mayWork(c, &d.facts):
		return g.onset + int64(d.unwatched)
	}
	return 0
}

// dead is a wait for a rank that has died, where the walk has led to a process which no fact
// holds: to a survivor that fell silent before the others, or to another end that is not seen.
// A rank that ended well may have done its part.
func (g *graph) dead(at string, fs *facts) *conclusion {
	switch {
	case g.held(at, fs):
		return nil
	case g.complete():
		return g.deadBehind(at, fs)
	}
	var found *conclusion
	for _, from := range slices.Sorted(maps.Keys(g.out)) {
		for i := range g.out[from] {
			e := &g.out[from][i]
			if e.to != "" || g.absent(fs).death(g.missingRank(e.stall, fs)) == nil {
				continue
			}
			if c := g.unseen(from, e, fs); !c.Fact.Well && (found == nil || c.Certain && !found.Certain) {
				found = c
			}
		}
	}
	return found
}

// unwatched takes the certainty from a wait for a rank of which nobody saw the end.
func (g *graph) unwatched(c *conclusion, fs *facts) *conclusion {
	if c == nil || c.Held != heldDead || c.Fact.Kind != rule.EventGone {
		return c
	}
	var gone []int
	for rank, death := range g.absent(fs).deaths {
		if death.Kind == rule.EventGone {
			gone = append(gone, rank)
		}
	}
	c.Certain, c.Missing = false, fmt.Sprintf("how rank %d ended: no agent watched", c.Fact.Rank)
	if slices.Sort(gone); len(gone) > 1 {
		c.Missing = fmt.Sprintf("how %s ended, and which one was first: no agent watched", verdict.RanksNamed(gone))
	}
	return c
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
	return "its node is down, runs no agent, sends to another gateway or too late, or the process computes"
}

// missingRank is the rank at the other end of a stall of which no record came, Unknown
// where several can be it.
func (g *graph) missingRank(s *socketstall.Stall, fs *facts) int {
	if s.PeerRank >= 0 {
		return s.PeerRank
	}
	return g.absent(fs).only
}

// absence is what is known of the ranks of a job of which no record came.
type absence struct {
	only    int           // the one that is missing; Unknown where several are, or it is not known how many
	several []int         // those that are missing, where they are more than one and of none it is known that it has ended
	deaths  map[int]*fact // by rank, the newest of each; of any rank of the job
	first   *fact         // the first death of a fault among those that are missing, lately or where all have ended; nil for none
	all     bool          // all that are missing have ended
}

// death is how the rank at an end has died, nil if it has not; where several can be there, how the
// first of those has died that died of a fault.
func (a *absence) death(rank int) *fact {
	if rank < 0 {
		return a.first
	}
	return a.deaths[rank]
}

// absent finds out, once.
func (g *graph) absent(fs *facts) *absence {
	if g.absence != nil {
		return g.absence
	}
	seen := map[int]bool{}
	for _, p := range g.procs {
		seen[p.Rank] = true
	}
	a := &absence{only: socketstall.Unknown, deaths: g.deaths(fs)}
	world, dead := g.j.stalls.World, 0
	var lately, ever *fact
	for rank, death := range a.deaths {
		if seen[rank] {
			continue
		}
		dead++
		if death.Well {
			continue
		}
		ever = sooner(ever, death)
		if death.Last >= g.onset-deathsBefore {
			lately = sooner(lately, death)
		}
	}
	if a.first, a.all = lately, world > 0 && len(seen)+dead >= world; a.all {
		a.first = ever
	}
	switch missing := without(world, seen); {
	case len(missing) == 1:
		a.only = missing[0]
	case dead == 0:
		a.several = missing
	}
	g.absence = a
	return a
}

// without are the ranks of a job but for those that were seen, nil where it is not known how many there are.
// Nor where a rank lies beyond that number, or one that was seen is not known. Nor where they are more than a verdict
// lists: a job says its own size, and two processes may claim a million ranks.
func without(world int, seen map[int]bool) (missing []int) {
	if world-len(seen) > verdict.MaxRanks {
		return nil
	}
	for rank := range seen {
		if rank < 0 || rank >= world {
			return nil
		}
	}
	for rank := range world {
		if !seen[rank] {
			missing = append(missing, rank)
		}
	}
	return missing
}

// sooner is the death that came first; nil is none.
func sooner(a, b *fact) *fact {
	if a != nil && cmp.Or(cmp.Compare(a.Onset, b.Onset), cmp.Compare(a.Rank, b.Rank)) < 0 {
		return a
	}
	return b
}

// deaths are how ranks of this start of the job have died: of each the newest death that is remembered.
// Where starts are not told apart, since shortly before the stall began. One that came after the
// job was told to wait for a living process is none: ranks die of that.
func (g *graph) deaths(fs *facts) map[int]*fact {
	deaths, since := map[int]*fact{}, g.onset-deathsBefore
	if g.j.stalls.Run != "" { // a rank that begins again is of another
		since = 0
	}
	for _, f := range fs.All {
		if !f.of(g.j.stalls.Name) || f.Rank < 0 || f.Kind != rule.EventExit && f.Kind != rule.EventGone && f.Kind != "oom.kill" || f.Last < since || g.j.follows(f) || fs.again(f) {
			continue
		}
		if last := deaths[f.Rank]; last == nil || f.Onset > last.Onset || f.Onset == last.Onset && f.compare(last) < 0 {
			deaths[f.Rank] = f
		}
	}
	return deaths
}

// follows reports whether something came after the job was told to wait for a process that lives,
// and happened to another.
func (j *job) follows(f *fact) bool {
	return j.Told != nil && j.Told.Lives != 0 && f.Onset > j.Told.Lives && socketstall.ProcessKey(f.Host, f.Of) != j.Told.Who
}

// deathsBefore is how long before a stall a death may be its cause, where nothing else tells that it is of
// this start and that its rank is at the other end: its peers notice it when they next use the connection.
const deathsBefore = int64(60e9)
