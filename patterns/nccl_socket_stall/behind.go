package ncclsocketstall

import (
	"fmt"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// shown is what sockets show of a job in which NVLink or shared memory may join the ranks of a host.
type shown struct {
	ranks  map[int]bool    // whose data sockets stand
	nccl   bool            // they are of NCCL: Gloo uses sockets alone
	inside map[string]bool // hosts inside which data of NCCL goes by sockets
}

// shown finds out, once. Where data of NCCL stands, a socket of Gloo shows nothing.
func (g *graph) shown() *shown {
	if g.sees != nil {
		return g.sees
	}
	nccl, gloo := &shown{ranks: map[int]bool{}, nccl: true, inside: map[string]bool{}}, &shown{ranks: map[int]bool{}}
	for _, s := range g.active {
		p := g.procs[s.Process]
		switch {
		case s.Kind.Service() || s.Kind.Joining():
		case s.Kind == socketstall.Gloo:
			gloo.ranks[p.Rank] = true
		default:
			nccl.ranks[p.Rank] = true
			if to := g.peer(s); to != "" && g.procs[to].Host == p.Host {
				nccl.inside[p.Host] = true
			}
		}
	}
	if g.sees = nccl; len(nccl.ranks) == 0 {
		g.sees = gloo
	}
	return g.sees
}

// behind says for which rank a process may wait that no socket shows: "" for none, or where the kernel holds
// the process itself.
func (g *graph) behind(key string) string {
	if g.blocked(key) {
		return ""
	}
	if n := g.size() - len(g.shown().ranks); n > 0 {
		return fmt.Sprintf("data sockets of %s: NVLink or shared memory may join %s to such a rank", ranksInWords(n), g.who(key))
	}
	return ""
}

func ranksInWords(n int) string {
	if n == 1 {
		return "one rank"
	}
	return verdict.Number(n) + " ranks"
}

// size is how many ranks the job has, at least: where they do not say it, the highest of them tells.
func (g *graph) size() int {
	n := g.j.stalls.World
	for _, p := range g.procs {
		n = max(n, p.Rank+1)
	}
	return n
}

// blocked reports whether the main thread of a process, or what it waits for, is blocked in the kernel.
func (g *graph) blocked(key string) bool {
	p := g.procs[key]
	return p.Doing.Halts() || p.State == socketstall.DiskSleep && !p.Doing.Progress()
}

// aside reports whether a process is on the host of another, and no socket shows which of them waits for the other.
func (g *graph) aside(other, key string) bool {
	host := g.procs[key].Host
	return other != key && g.procs[other].Host == host && len(g.idle[other]) > 0 && g.shown().nccl && !g.shown().inside[host]
}

// besideUnread says which rank of its host fell silent before a process that does not read, or with it: its GPU
// takes no more data while it waits for that one. "" for none.
func (g *graph) besideUnread(key string) string {
	first := ""
	for other := range g.idle {
		if by, off := g.later(key, other); g.aside(other, key) && by >= -off && (first == "" || g.before(other, first)) {
			first = other
		}
	}
	if first == "" || g.blocked(key) {
		return ""
	}
	return fmt.Sprintf("which rank of its host holds it up: rank %d fell silent no later, and NVLink or shared memory may join them", g.procs[first].Rank)
}

// deadBehind is a wait for a rank that has died, where the walk has led to a process that may wait for it and no
// socket shows that. A rank that ended well may have done its part.
func (g *graph) deadBehind(key string, fs *facts) *conclusion {
	behind := g.behind(key)
	if behind == "" || g.held(key, fs) {
		return nil
	}
	absent := g.absent(fs)
	if absent.first == nil {
		return nil
	}
	c := &conclusion{
		Held: heldDead, Culprit: key, Fact: absent.first, Far: absent.first.Rank, Certain: absent.all,
		Shows: fmt.Sprintf("%s does not go on; rank %d has died", g.who(key), absent.first.Rank),
	}
	if !absent.all {
		c.Missing = behind
	}
	return c
}
