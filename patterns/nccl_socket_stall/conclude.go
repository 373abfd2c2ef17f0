package ncclsocketstall

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// How a job is held up.
const (
	heldStopped = "stopped"     // a process is stopped (SIGSTOP) or a zombie
	heldFrozen  = "frozen"      // a freezer holds the cgroup of a process
	heldReading = "not_reading" // a process does not read what its peers sent
	heldSilent  = "silent"      // a process fell silent first of those that owe data
	heldWorks   = "works"       // such a process makes progress: it is no fault
	heldUnseen  = "unseen"      // the others wait for a process that no record came from
	heldMissing = "missing"     // the same, and its rank is known
	heldDead    = "dead"        // the others wait for a rank that has died
	heldTied    = "tied"        // several fell silent at once
	heldAsleep  = "asleep"      // all sleep until a time comes, and none waits for another
	heldOutside = "outside"     // it waits itself for a process that is no rank of the job
	heldPath    = "path"        // packets do not get through
	heldRefused = "refused"     // nobody listens at the other end
)

// conclusion is what holds a job up.
type conclusion struct {
	Held    string
	Culprit string             // process; of a path the end that sends
	Stall   *socketstall.Stall // that shows it
	Fact    *fact              // what the kernel says of the culprit
	Certain bool
	Shows   string // the evidence in plain words
	Missing string // what would have made it certain
	Way     string // of a path: what is known of the other direction
	Order   string // of a silence: why the others wait for that process and not for another
	Far     int    // of a process that is not seen, its rank; Unknown
	Tied    []int  // ranks that fell silent at once, or that are stopped or frozen together; nil for one alone
	Absent  []int  // ranks of which one is meant: no record of them came
	Behind  string // ranks of the job whose sockets are not seen: the culprit may wait for one of them; "" for none

	tied   []string // processes of which one is meant: they fell silent at once
	aborts bool     // ranks of the job that die now die of it
	early  bool     // what is awaited may do its work in health, and ranks have not waited for long
	said   string   // all of it, once it is a finding
}

// conclude names what holds the job up at that time, or says when to ask again.
// While records of others may be on their way, what was told stands.
func (g *graph) conclude(now int64, fs *facts) (c *conclusion, wait int64, stands bool) {
	if c := cmp.Or(g.stopped(fs), g.path(fs)); c != nil {
		return g.inPart(g.dying(g.explained(c, fs), fs, now)), 0, false
	}
	start := g.start()
	if start == "" {
		return nil, 0, false
	}
	key, unseen := g.walk(start, fs)
	settles := max(g.first+int64(g.settle), g.j.Late)
	settled := now >= settles || g.complete()
	s := g.unread(key)
	switch {
	case (unseen != nil || s == nil) && !settled:
		return nil, settles, true
	case unseen != nil:
		if c = g.unseen(key, unseen, fs); c.Held != heldDead {
			c = cmp.Or(g.dead(key, fs), c)
		}
	case s != nil:
		if c = g.deadBehind(key, fs); c == nil {
			c = g.notReading(key, s)
		}
	case g.isAccused(key):
		c = g.accused(key)
	default:
		first := g.firstOf(key, fs)
		named := g.working(first, fs)
		if c = g.dead(named, fs); c != nil {
			break
		}
		if g.pauses() && !g.held(named, fs) {
			if g.j.stalls.Last < g.onset+int64(g.asleep) { // records say whether they still do
				return nil, 0, false
			}
			return g.inPart(g.asleepAll(named)), 0, false
		}
		if c = g.beside(g.fellSilent(named, first), fs); c.Held == heldSilent && !c.Certain && !g.held(c.Culprit, fs) {
			c = cmp.Or(g.outside(now), c)
		}
	}
	return g.inPart(g.unwatched(g.tie(g.believed(g.explained(c, fs))), fs)), 0, false
}

// dying takes the certainty from a process whose main thread has ended since another rank of its
// job died: it may be about to end of that, slowly where it has much memory or a GPU.
func (g *graph) dying(c *conclusion, fs *facts, now int64) *conclusion {
	if c.Held == heldStopped && c.Fact == nil && g.procs[c.Culprit].State == socketstall.Zombie && fs.diedIn(g.j.stalls.Name, g.onset-deathsBefore, now) {
		c.Certain, c.Missing = false, "whether it ends of the death of another rank"
	}
	return c
}

// endingWait is how long a process may take to end, whose main thread has: where it has much memory or a GPU, or on a busy machine.
const endingWait = int64(10e9)

// ending is until when it is waited for the end of a process that ends as ranks of its job die; what was told stands. 0: it does
// not end, or not of that.
func (g *graph) ending(c *conclusion, now int64) int64 {
	if c == nil || c.Held != heldStopped || c.Certain || g.procs[c.Culprit].State != socketstall.Zombie {
		return 0
	}
	if until := g.procs[c.Culprit].Halted + endingWait; now < until {
		return until
	}
	return 0
}

// inPart makes a conclusion partial where stalls of the job were given up: others may wait for
// somebody else. That a process is stopped holds whatever others wait for.
func (g *graph) inPart(c *conclusion) *conclusion {
	if c == nil || !g.j.stalls.Cut() || c.Held == heldStopped || c.Held == heldFrozen {
		return c
	}
	c.Certain = false
	c.Missing = "all stalls of the job: there are more than are held at once (" + verdict.Number(g.limits.Stalls) + ")"
	return c
}

// mountSpeaks is until when the probe of FUSE is waited for: the rank that is named waits for such
// a mount, which is the cause, and nothing has named that yet. 0: it is waited for no more.
func (g *graph) mountSpeaks(c *conclusion, now int64) int64 {
	if c == nil || c.Held != heldSilent && c.Held != heldReading || c.Fact != nil {
		g.j.Mount = 0
		return 0
	}
	if p := g.procs[c.Culprit]; !p.Doing.MountSpeaks(p.State) {
		g.j.Mount = 0
		return 0
	}
	if g.j.Mount == 0 {
		g.j.Mount = now
	}
	if until := g.j.Mount + int64(g.mounts); now < until {
		return until
	}
	return 0
}

// believed takes the word of the receiver for how long a rank may be silent that does what
// it does. It has seen the pauses of the job, and the operator has set its patience.
func (g *graph) believed(c *conclusion) *conclusion {
	p := g.procs[c.Culprit]
	if c.Held != heldSilent {
		return c
	}
	switch p.Doing.Silence {
	case socketstall.Usual:
		return nil
	case socketstall.Long:
		c.Held, c.Certain = heldWorks, false
		c.Shows = g.who(c.Culprit) + " makes progress: " + doing(p)
		if c.Order == fellSilentFirst {
			c.Shows = g.who(c.Culprit) + " fell silent first and makes progress: " + doing(p)
		}
		c.Missing = "whether it is a long phase or a loop without end"
	}
	return c
}

// stopped finds the process that is stopped; of several, the first. One whose main thread had ended may have ended altogether
// since: it is not.
func (g *graph) stopped(fs *facts) *conclusion {
	key := ""
	for _, s := range g.active {
		if p := g.procs[s.Process]; p.State.Halted() && (p.State != socketstall.Zombie || fs.endOf(p, g.j.stalls) == 0) && (key == "" || g.before(s.Process, key)) {
			key = s.Process
		}
	}
	if key == "" {
		return nil
	}
	c := &conclusion{Held: heldStopped, Culprit: key, Stall: g.unread(key), Certain: true}
	if c.Shows = fmt.Sprintf("the main thread of %s is %s", g.who(key), g.procs[key].State); g.procs[key].State == socketstall.Frozen {
		c.Held, c.Shows = heldFrozen, "the cgroup of "+g.who(key)+" is frozen"
	}
	if c.Tied = g.alike(key); len(c.Tied) > 0 {
		c.Shows = fmt.Sprintf("%s are %s together: %s", verdict.RanksNamed(c.Tied), g.procs[key].State, c.Shows)
	}
	return c
}

// alike are the ranks that are stopped, or frozen, as this process is: who suspends a job suspends all of it. Nil where
// it is the only one.
func (g *graph) alike(key string) (ranks []int) {
	for _, p := range g.procs {
		if p.State == g.procs[key].State && p.Doing.Traced == g.procs[key].Doing.Traced && p.State != socketstall.Zombie {
			ranks = append(ranks, p.Rank)
		}
	}
	slices.Sort(ranks)
	if ranks = slices.Compact(ranks); len(ranks) < 2 {
		return nil
	}
	return ranks
}

// before orders processes by when they fell silent.
func (g *graph) before(a, b string) bool {
	return cmp.Or(cmp.Compare(g.silent(a), g.silent(b)), cmp.Compare(g.procs[a].Rank, g.procs[b].Rank), cmp.Compare(a, b)) < 0
}

// unread is the oldest stall in which a process itself does not read.
func (g *graph) unread(key string) *socketstall.Stall { return g.reads[key] }

// before orders stalls by when they began.
func before(s, o *socketstall.Stall) bool {
	return cmp.Or(
		cmp.Compare(s.Onset, o.Onset), cmp.Compare(s.Process, o.Process), s.Peer.Compare(o.Peer), s.Local.Compare(o.Local),
		cmp.Compare(s.Cause, o.Cause), cmp.Compare(s.Direction, o.Direction),
	) < 0
}

// start is where to begin the walk: at a process that does not read, or one that
// says so of its peer, or the one that fell silent first of those that owe data.
func (g *graph) start() string {
	key := ""
	var oldest *socketstall.Stall
	for _, cause := range []socketstall.Cause{socketstall.NotReading, socketstall.PeerNotReading} {
		for _, s := range g.active {
			if s.Cause == cause && (oldest == nil || before(s, oldest)) {
				oldest = s
			}
		}
		if oldest != nil {
			return oldest.Process
		}
	}
	if len(g.out) == 0 { // nobody waits
		return ""
	}
	for _, s := range g.active {
		if s.Cause == socketstall.Waiting && (key == "" || g.sooner(s.Process, key)) {
			key = s.Process
		}
	}
	return key
}

// walk follows the waits from a process to the one that waits for nobody. A wait
// for a peer that does not read is followed always; one with empty queues only
// to a process that fell silent earlier, and not from one that has unread bytes
// or that the kernel holds. Where it ends at a process that owes nothing, the last on the way that
// owes data is returned. The edge that leads to an unseen process is returned with the last that was seen.
func (g *graph) walk(at string, fs *facts) (last string, unseen *edge) {
	owing := ""
	for visited := map[string]bool{}; !visited[at]; {
		visited[at] = true
		if g.owes(at) {
			owing = at
		}
		next, open := g.step(at, visited, fs)
		switch {
		case next != nil:
			at = next.to
			if next.strong {
				owing = ""
			}
		case open != nil:
			return at, open
		}
	}
	if owing != "" && g.unread(at) == nil && !g.held(at, fs) {
		return owing, nil
	}
	return at, nil
}

func (g *graph) step(at string, visited map[string]bool, fs *facts) (next, open *edge) {
	held := g.unread(at) != nil || g.held(at, fs)
	for i := range g.out[at] {
		e := &g.out[at][i]
		switch {
		case !e.strong && held, visited[e.to]:
		case e.to == "" && g.complete(): // none of the job's ranks is missing
		case e.to == "":
			if open == nil || e.strong && !open.strong {
				open = e
			}
		case e.strong:
			return e, nil
		default:
			if by, _ := g.later(at, e.to); by > 0 && (next == nil || g.sooner(e.to, next.to)) {
				next = e
			}
		}
	}
	if open != nil && open.strong {
		return nil, open
	}
	return next, open
}

// held reports whether the kernel itself says that a process does not go on.
func (g *graph) held(key string, fs *facts) bool {
	who := subjectOf(g.procs[key], g.j.stalls)
	f := fs.of(who, g.onset, g.first)
	return g.blocked(key) || f != nil && !f.outlived(who)
}

func (g *graph) notReading(key string, s *socketstall.Stall) *conclusion {
	c := &conclusion{
		Held: heldReading, Culprit: key, Stall: s, Certain: true,
		Shows: fmt.Sprintf("%s has %d unread bytes from %s and does not read them", g.who(key), s.Unread, g.nameOfPeer(s)),
	}
	if c.Behind = cmp.Or(g.behind(key), g.besideUnread(key)); c.Behind != "" {
		c.Certain, c.Missing = false, c.Behind
	}
	return g.dataPath(c)
}

// isAccused reports whether a peer says of a process that it does not read.
func (g *graph) isAccused(key string) bool {
	return slices.ContainsFunc(g.active, func(s *socketstall.Stall) bool { return s.Cause == socketstall.PeerNotReading && g.peer(s) == key })
}

// accused is a process of which its peers say that it does not read.
func (g *graph) accused(key string) *conclusion {
	c := &conclusion{
		Held: heldReading, Culprit: key,
		Shows:   fmt.Sprintf("the send queues towards %s are full, and it offers no room", g.who(key)),
		Missing: "unread bytes of that process: its own agent does not report them",
	}
	return g.dataPath(c)
}

// explained puts beside a conclusion what the kernel says of its culprit.
func (g *graph) explained(c *conclusion, fs *facts) *conclusion {
	if c.Held == heldPath || c.Held == heldRefused || c.nobody() {
		return c
	}
	who := subjectOf(g.procs[c.Culprit], g.j.stalls)
	c.Fact = fs.of(who, g.onset, g.first)
	if c.Fact != nil && !c.Fact.outlived(who) && (c.Held == heldSilent || c.Behind != "") && g.dataSeen() {
		c.Certain, c.Missing, c.Behind = true, "", ""
	}
	return c
}

// dataPath makes a conclusion partial that rests on no socket that data goes
// through.
func (g *graph) dataPath(c *conclusion) *conclusion {
	if !g.dataSeen() {
		c.Certain = false
		c.Missing = "the data path is not visible: no socket of it is there, as with InfiniBand, RoCE or NVLink"
	}
	return c
}

func (g *graph) dataSeen() bool {
	return slices.ContainsFunc(g.active, func(s *socketstall.Stall) bool {
		return !s.Kind.Service() && !s.Kind.Joining()
	})
}

// nameOfPeer names the other end of a stall, as far as it is known.
func (g *graph) nameOfPeer(s *socketstall.Stall) string {
	if to := g.peer(s); to != "" {
		return fmt.Sprintf("rank %d", g.procs[to].Rank)
	}
	if s.PeerRank >= 0 {
		return fmt.Sprintf("rank %d", s.PeerRank)
	}
	return address(s.Peer, "an unknown peer")
}

func milliseconds(d int64) string { return fmt.Sprintf("%d ms", d/1e6) }
