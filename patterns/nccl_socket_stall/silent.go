package ncclsocketstall

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// tolerance is by how much the first look at a process may be later than its silence, and
// nothing of it be missed: two snapshots.
const tolerance = int64(2e9)

// fellSilent is the process that fell silent first of those that owe data, or that is known not to
// go on while the one which fell silent before it is held by nothing.
func (g *graph) fellSilent(key, first string) *conclusion {
	p := g.procs[key]
	margin, off, next := g.margin(key)
	c := &conclusion{Held: heldSilent, Culprit: key, Behind: g.behind(key)}
	owes, earlier := g.owes(key), g.earlier(key)
	if owes {
		c.Order = "received data that it did not answer"
	}
	by, clocks := g.later(key, first)
	switch {
	case by > 0:
		c.Order = ""
		c.Shows = fmt.Sprintf("%s does not go on; nothing holds rank %d, which fell silent %s before it (clocks agree to %s)", g.who(key), g.procs[first].Rank, milliseconds(by), milliseconds(clocks))
	case earlier != "":
		by, clocks = g.later(key, earlier)
		c.Shows = fmt.Sprintf("%s fell silent %s after rank %d (clocks agree to %s)", g.who(key), milliseconds(by), g.procs[earlier].Rank, milliseconds(clocks))
		if !g.owes(earlier) {
			c.Shows += ", which owes nothing"
		}
	case next == "":
		c.Order = fellSilentFirst
		c.Shows = g.who(key) + " fell silent first"
	case margin > off:
		c.Order = fellSilentFirst
		c.Shows = fmt.Sprintf("%s fell silent first, %s before rank %d (clocks agree to %s)", g.who(key), milliseconds(margin), g.procs[next].Rank, milliseconds(off))
	default:
		c.Shows = fmt.Sprintf("%s fell silent together with rank %d (clocks agree to %s)", g.who(key), g.procs[next].Rank, milliseconds(off))
	}
	if owes {
		c.Shows += fmt.Sprintf("; it received data %s after it last sent any: it owes", milliseconds(p.Received-p.Sent))
	}
	if waits := p.Doing.Waits(); waits != "" {
		c.Shows += "; " + waits
	}
	if late := p.Doing.Watched - g.silent(key); p.Doing.Watched != 0 && late > tolerance {
		c.Shows += fmt.Sprintf("; the agent began to watch it %.0f s later: what it did before was not seen", float64(late)/1e9)
	}
	switch {
	case !g.complete():
		c.Missing = "records of all ranks: some wait for processes of which none came"
	case p.State == socketstall.DiskSleep && !p.Doing.Progress():
		c.Certain = true
		c.Shows += "; its main thread sleeps in the kernel (D)"
	case p.Doing.Halts():
		c.Certain = true
	case earlier != "":
		c.Missing = fmt.Sprintf("a clear order: rank %d fell silent before it", g.procs[earlier].Rank)
	case next == "" || margin <= off:
		c.Missing = "a clear order: others fell silent within the error of the clocks"
	case !owes:
		c.Missing = "data that it received and did not answer"
	case c.Behind != "":
		c.Missing = c.Behind
	default:
		c.Certain = true
	}
	return g.dataPath(c)
}

// fellSilentFirst says of a process that none fell silent before it, as far as the clocks can tell.
const fellSilentFirst = "fell silent first"

// owes reports whether a process received data later than it sent any, by more than a tick: one that waits
// has sent what it had to before. Alone that decides nothing, for in a long collective it may wait all the same.
func (g *graph) owes(key string) bool {
	p := g.procs[key]
	return p.Sent != 0 && p.Received-p.Sent > g.tick(key)
}

// sooner orders processes by how likely the others wait for them. The first to fall silent comes first, but
// not before one that owes data: the next stage of a pipeline has asked for its data, and waits, before the
// stage that holds them up has received its own.
func (g *graph) sooner(a, b string) bool {
	if owes := g.owes(a); owes != g.owes(b) {
		return owes
	}
	return g.before(a, b)
}

// earlier is the first of the processes that fell silent before one, as far as its host and its connections
// tell; "" for none.
func (g *graph) earlier(key string) string {
	first := ""
	for other := range g.idle {
		by, off := g.later(other, key)
		if by < -off && (first == "" || g.before(other, first)) && g.sameClock(other, key) {
			first = other
		}
	}
	return first
}

// margin is by how much a process fell silent before the next of those that it
// waits for or that wait for it, as far as sockets show.
func (g *graph) margin(key string) (by, off int64, next string) {
	look := func(other string) {
		if other == "" || other == key {
			return
		}
		b, o := g.later(other, key)
		if next == "" || cmp.Or(cmp.Compare(b-o, by-off), cmp.Compare(other, next)) < 0 {
			by, off, next = b, o, other
		}
	}
	for _, e := range g.out[key] {
		look(e.to)
	}
	for other := range g.idle {
		if g.aside(other, key) {
			look(other)
		}
	}
	for from, edges := range g.out {
		if slices.ContainsFunc(edges, func(e edge) bool { return e.to == key }) {
			look(from)
		}
	}
	return by, off, next
}

// tie names nobody where several ranks fell silent at once, as far as the clocks tell, and nothing else says which
// of them the others wait for.
func (g *graph) tie(c *conclusion) *conclusion {
	if c == nil || c.Held != heldSilent || c.Certain || g.procs[c.Culprit].Doing.Asks() != "" || c.Fact != nil && !c.Fact.outlived(subjectOf(g.procs[c.Culprit], g.j.stalls)) {
		return c
	}
	tied := g.tied(c.Culprit)
	if owing := g.owing(tied); len(owing) > 0 {
		tied = owing
	}
	if len(tied) < 2 {
		return c
	}
	c.Held, c.Tied, c.tied = heldTied, nil, tied
	within := int64(0)
	for _, key := range tied {
		_, off := g.later(key, c.Culprit)
		if within = max(within, g.tick(key)); !g.owes(c.Culprit) {
			within = max(within, off)
		}
		c.Tied = append(c.Tied, g.procs[key].Rank)
	}
	slices.Sort(c.Tied)
	c.Tied = slices.Compact(c.Tied)
	c.Shows = fmt.Sprintf("%s ranks fell silent at once, within %s", verdict.Number(len(c.Tied)), milliseconds(within))
	c.Missing = "a clear order: the stacks of these ranks tell which of them is in no collective"
	return c
}

// pauses reports whether all ranks of the job sleep until a time comes: none of them waits for another.
func (g *graph) pauses() bool {
	for key := range g.idle {
		if !g.procs[key].Pauses() {
			return false
		}
	}
	return g.complete()
}

// asleepAll names nobody where all ranks have done so for too long.
func (g *graph) asleepAll(key string) *conclusion {
	c := &conclusion{Held: heldAsleep, Culprit: key, Shows: "the main threads of all ranks sleep until a time comes"}
	for key := range g.idle {
		c.Tied = append(c.Tied, g.procs[key].Rank)
	}
	slices.Sort(c.Tied)
	c.Tied = slices.Compact(c.Tied)
	c.Missing = "what they sleep for: the stacks of these ranks tell"
	return c
}

// tied are the processes that fell silent with one, itself among them: within a tick of the kernel's clock or, where
// it owes nothing, as far as the clocks tell. Data does not tell then either.
func (g *graph) tied(key string) []string {
	tied := []string{key}
	for other := range g.idle {
		by, off := g.later(other, key)
		if g.owes(key) {
			off = max(g.tick(key), g.tick(other))
		}
		if other != key && max(by, -by) <= off {
			tied = append(tied, other)
		}
	}
	slices.Sort(tied)
	return tied
}

// owing are those of them that owe data.
func (g *graph) owing(tied []string) []string {
	return slices.DeleteFunc(slices.Clone(tied), func(key string) bool { return !g.owes(key) })
}

// firstOf is the one of those that fell silent with a process which the others wait for: the
// only one that the kernel holds, that makes progress, or that owes data, else the process
// itself.
func (g *graph) firstOf(key string, fs *facts) string {
	tied := g.tied(key)
	held := slices.DeleteFunc(slices.Clone(tied), func(key string) bool { return !g.held(key, fs) })
	working := slices.DeleteFunc(slices.Clone(tied), func(key string) bool { return !g.procs[key].Doing.Progress() })
	asking := slices.DeleteFunc(slices.Clone(tied), func(key string) bool { return g.procs[key].Doing.Asks() == "" })
	for _, only := range [][]string{held, working, asking, g.owing(tied)} {
		if len(only) == 1 {
			return only[0]
		}
	}
	return key
}

// working is the process that the others wait for, where the one that fell silent first neither makes
// progress nor is held: in a collective of few bytes it may have to receive before it sends, and
// be silent for longer. In a Gloo job that is one that makes progress, for who waits there sleeps, unless it
// is known to wait; else the only one that the kernel holds.
func (g *graph) working(key string, fs *facts) string {
	if g.procs[key].Doing.Progress() || g.held(key, fs) {
		return key
	}
	works, stuck := "", []string{}
	for other := range g.idle {
		gloo := slices.ContainsFunc(g.idle[other], func(e edge) bool { return e.stall.Kind == socketstall.Gloo })
		if gloo && g.procs[other].Doing.Progress() && !g.waitsFor(other, key) && (works == "" || g.sooner(other, works)) {
			works = other
		}
		if g.stuck(other, fs) {
			stuck = append(stuck, other)
		}
	}
	if works == "" && len(stuck) == 1 {
		return stuck[0]
	}
	return cmp.Or(works, key)
}

// waitsFor reports whether a process waits for another though a thread of it computes, such as a monitor. Its main
// thread makes no progress, and it owes nothing. The other owes data, rests for too long, and fell silent before this
// one sent its last. Who makes others wait has received what they sent since.
func (g *graph) waitsFor(works, key string) bool {
	by, off := g.later(works, key)
	return g.procs[works].Doing.Activity == socketstall.ThreadComputing && !g.owes(works) &&
		g.owes(key) && g.procs[key].Doing.Silence == socketstall.Overdue && by > max(off, atOnce)
}

// atOnce is within which ranks leave a collective.
const atOnce = int64(10 * time.Millisecond)

// beside takes the certainty from a silence beside which a thread of another rank computes: that thread may be what all
// wait for.
func (g *graph) beside(c *conclusion, fs *facts) *conclusion {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(g.idle)), func(other string) bool { return !g.waitsFor(other, c.Culprit) })
	if len(others) > 0 && c.Certain && !g.held(c.Culprit, fs) {
		c.Certain, c.Missing = false, fmt.Sprintf("that nobody waits for %s, of which a thread computes", verdict.RanksNamed(g.ranksOf(others)))
	}
	return c
}

// stuck reports whether the kernel holds a process in this stall: not in a pause as it usually makes,
// nor by what happened long before.
func (g *graph) stuck(key string, fs *facts) bool {
	p := g.procs[key]
	if p.Doing.Silence == socketstall.Usual || p.Doing.Progress() {
		return false
	}
	who := subjectOf(p, g.j.stalls)
	f := fs.about(who, g.onset, g.first, order)
	switch {
	case p.State == socketstall.DiskSleep, p.Doing.Halts():
		return true
	case f == nil || f.Ended != 0 || f.outlived(who): // it was answered, or went on
		return false
	case f.Kind == "fuse.stall":
		return true
	case f.Kind == "oom.kill": // of a worker
		return f.Last >= g.onset-deathsBefore
	}
	return f.Last >= g.onset-deathsBefore && f.Last >= g.silent(key)-sameFault // else it has gone on since
}

// sameFault is how long a rank may go on to send after what holds it is reported: the kernel's records
// and those of sockets are of two readers.
const sameFault = int64(time.Second)
