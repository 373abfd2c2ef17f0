package ncclsocketstall

import "github.com/tracecoreai/tracecore/internal/socketstall"

// lasting tells which stalls of a job last. One that lasts is repeated. Where it is not, and no end of
// it came, its agent is silent: it restarts, or its records do not arrive. Silence ends nothing. Such a stall
// lasts while others see it: their sockets towards its host have not moved since it was last reported.
type lasting struct {
	*graph
	d       *detector
	now     int64
	seen    map[string]int64 // since when others see a host stand: the onset of the oldest of their stalls towards it
	moved   int64            // when something of the job moved last, as far as that was told
	fades   int64            // when the next stall is over that is not repeated; 0: none is
	unheard map[string]int64 // by process: since when its agent is silent, while others see it stand
}

func (d *detector) lasting(g *graph, now int64) *lasting {
	watched := int64(0)
	for _, at := range g.j.Watched {
		watched = max(watched, at)
	}
	l := &lasting{graph: g, d: d, now: now, seen: map[string]int64{}, unheard: map[string]int64{}, moved: max(g.j.Ended, watched)}
	for s := range g.j.stalls.Stalls() {
		from, to := g.procs[s.Process], g.procs[g.peer(s)]
		if s.Ended == 0 && to != nil && to.Host != from.Host && !s.Kind.Service() && g.j.repeated(s) && s.Last > watched {
			l.seen[to.Host] = earliest(l.seen[to.Host], s.Onset)
		}
	}
	return l
}

// repeated reports whether a stall is reported, as far as its job is heard of.
func (j *job) repeated(s *socketstall.Stall) bool {
	return s.Last+int64(socketstall.Fading) >= j.stalls.Last
}

// quiet is when a stall that lasts would have been repeated, and the record have come.
func (d *detector) quiet(s *socketstall.Stall) int64 {
	return s.Last + int64(socketstall.Fading) + d.lateness
}

// lasts reports whether a stall does.
func (l *lasting) lasts(s *socketstall.Stall) bool {
	p := l.procs[s.Process]
	since := l.seen[p.Host]
	stands := since != 0 && since <= s.Last && l.j.Watched[p.Host] <= s.Last
	switch {
	case s.Ended != 0, s.Last < l.j.Moving[p.Host]: // who told it is gone, and all ranks have moved since
		return false
	case !l.j.repeated(s):
		if !stands || p.Last > s.Last+int64(socketstall.Fading) {
			return false
		}
		l.unheard[s.Process] = max(l.unheard[s.Process], s.Last)
	case stands || l.moved <= s.Last:
	case l.d.quiet(s) < l.now:
		return false
	default:
		l.fades = earliest(l.fades, l.d.quiet(s)+1)
	}
	return true
}

// left reports whether the ranks of all stalls have ended, and no record of these can come any more. An agent that begins
// anew after that tells none.
func (d *detector) left(g *graph, now int64) bool {
	ended := int64(0)
	for _, s := range g.active {
		at := d.facts.endOf(g.procs[s.Process], g.j.stalls)
		if at == 0 {
			return false
		}
		ended = max(ended, at)
	}
	if settled := ended + d.lateness; settled >= now {
		g.fades = earliest(g.fades, settled+1)
		return false
	}
	g.moved = max(g.moved, ended)
	return true
}
