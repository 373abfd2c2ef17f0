package ncclsocketstall

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// graph is who waits for whom in one job, at one moment.
type graph struct {
	*thresholds
	j      *job
	procs  map[string]*socketstall.Process
	active []*socketstall.Stall
	first  int64 // when the oldest of them was first reported
	onset  int64 // of the oldest
	moved  int64 // when something of the job is last known to have moved, or ended
	fades  int64 // when the next of them is over, because it is not repeated; 0: none is

	ranks     map[rankOn]string             // process of a rank on a host
	endpoints map[netip.AddrPort]string     // process that has a local address and port
	addresses map[netip.Addr]string         // process that alone has a local address; "" when several have
	out       map[string][]edge             // by process: what it waits for
	idle      map[string][]edge             // by process: its sockets with empty queues, in both directions
	reads     map[string]*socketstall.Stall // by process: the oldest stall in which it does not read itself
	open      bool                          // some wait leads to a process that no record came from
	absence   *absence                      // of its ranks, once it is known
	sees      *shown                        // what sockets show, once it is known
	unheard   map[string]int64              // by process: since when its agent is silent, while others see it stand
}

type rankOn struct {
	host string
	rank int
}

// edge is one wait of a process.
type edge struct {
	to     string // process, "" when none is known at the other end
	strong bool   // the kernel says that the other end holds it up
	stall  *socketstall.Stall
}

func (d *detector) graph(j *job, now int64) *graph {
	g := &graph{thresholds: d.thresholds, j: j, procs: j.stalls.Processes, reads: map[string]*socketstall.Stall{}}
	g.index()
	l := d.lasting(g, now)
	for s := range j.stalls.Stalls() {
		if l.lasts(s) {
			g.active = append(g.active, s)
			g.first, g.onset = earliest(g.first, s.First), earliest(g.onset, s.Onset)
		}
	}
	g.moved, g.fades, g.unheard = l.moved, l.fades, l.unheard
	if g.forgetOthers() {
		g.index()
	}
	for _, s := range g.active {
		g.connect(s)
	}
	for _, edges := range g.out {
		slices.SortFunc(edges, func(a, b edge) int {
			return cmp.Or(cmp.Compare(a.to, b.to), a.stall.Peer.Compare(b.stall.Peer), cmp.Compare(a.stall.Cause, b.stall.Cause))
		})
	}
	return g
}

// index notes where processes are, and can be reached.
func (g *graph) index() {
	procs, stalls := len(g.procs), g.j.stalls.Len()
	g.ranks, g.endpoints, g.addresses = make(map[rankOn]string, procs), make(map[netip.AddrPort]string, stalls), make(map[netip.Addr]string, procs)
	g.out, g.idle = make(map[string][]edge, procs), make(map[string][]edge, procs)
	for key, p := range g.procs {
		at := rankOn{p.Host, p.Rank}
		if other, taken := g.ranks[at]; !taken || g.newer(key, other) {
			g.ranks[at] = key
		}
	}
	for s := range g.j.stalls.Stalls() {
		if g.procs[s.Process] != nil {
			g.locate(s)
		}
	}
}

// forgetOthers leaves out the processes that were heard of before all that lasts began, and have no part in it:
// nothing is known of them since. It reports whether there are any.
func (g *graph) forgetOthers() bool {
	parts := make(map[string]bool, len(g.procs))
	for _, s := range g.active {
		parts[s.Process] = true
	}
	other := func(key string, p *socketstall.Process) bool { return !parts[key] && p.Last < g.onset }
	for key, p := range g.procs {
		if other(key, p) {
			g.procs = maps.Clone(g.procs)
			maps.DeleteFunc(g.procs, other)
			return true
		}
	}
	return false
}

// newer reports whether process a was heard of later than b: a rank that was
// restarted has a new process.
func (g *graph) newer(a, b string) bool {
	return cmp.Or(cmp.Compare(g.procs[a].Last, g.procs[b].Last), cmp.Compare(a, b)) > 0
}

// locate notes where the process of s can be reached.
func (g *graph) locate(s *socketstall.Stall) {
	if !s.Local.IsValid() {
		return
	}
	if other, taken := g.endpoints[s.Local]; !taken || s.Process > other {
		g.endpoints[s.Local] = s.Process
	}
	at := s.Local.Addr()
	switch other, taken := g.addresses[at]; {
	case !taken:
		g.addresses[at] = s.Process
	case other != s.Process:
		g.addresses[at] = ""
	}
}

// connect enters the wait that s shows, if it is one.
func (g *graph) connect(s *socketstall.Stall) {
	e := edge{stall: s}
	switch {
	case s.Cause == socketstall.PeerNotReading:
		e.strong = true
	case s.Cause == socketstall.NotReading:
		if known := g.reads[s.Process]; known == nil || before(s, known) {
			g.reads[s.Process] = s
		}
		return
	case s.Cause == socketstall.Waiting:
		e.to = g.peer(s)
		g.idle[s.Process] = append(g.idle[s.Process], e)
		if s.Direction != socketstall.Receive {
			return
		}
	case s.Cause == socketstall.Network, s.Cause == socketstall.Connecting && !s.Kind.Joining():
	default:
		return
	}
	e.to = g.peer(s)
	g.open = g.open || e.to == "" && s.Cause != socketstall.Network && s.Cause != socketstall.Connecting
	g.out[s.Process] = append(g.out[s.Process], e)
}

// peer is the process at the other end of s: the rank that the record names, or
// whose socket has the mirrored addresses, or the only one at that address.
func (g *graph) peer(s *socketstall.Stall) string {
	if s.PeerRank >= 0 {
		return g.ranks[rankOn{g.procs[s.Process].Host, s.PeerRank}]
	}
	if !s.Peer.IsValid() {
		return ""
	}
	to, ok := g.endpoints[s.Peer]
	if !ok {
		to = g.addresses[s.Peer.Addr()]
	}
	if to == s.Process {
		return ""
	}
	return to
}

// complete reports whether every rank of the job was heard of, or every wait
// leads to one that was.
func (g *graph) complete() bool {
	if !g.open {
		return true
	}
	ranks := map[int]bool{}
	for _, p := range g.procs {
		ranks[p.Rank] = true
	}
	return g.j.stalls.World > 0 && len(ranks) >= g.j.stalls.World
}

// drill reports whether all processes of the job are of a drill.
func (g *graph) drill() bool {
	for _, p := range g.procs {
		if !p.Drill {
			return false
		}
	}
	return true
}

// silent is when a process last sent data, as far as that is known.
func (g *graph) silent(key string) int64 {
	p := g.procs[key]
	if p.Sent != 0 {
		return p.Sent
	}
	return p.First
}

// tick is how exact the ages of a process are.
func (g *graph) tick(key string) int64 {
	return int64(socketstall.Tick(time.Duration(g.procs[key].Tick)))
}

// later returns by how much a fell silent after b, and how far that may be off.
func (g *graph) later(a, b string) (by, off int64) {
	by = g.silent(a) - g.silent(b)
	if g.procs[a].Host == g.procs[b].Host {
		return by, max(g.tick(a), g.tick(b))
	}
	if skew, ok := g.skew(a, b); ok {
		return by - skew, int64(g.errorWay) + g.tick(a) + g.tick(b)
	}
	return by, int64(g.errorNTP)
}

// sameClock reports whether two processes are on one host, or a connection tells the difference of their clocks.
func (g *graph) sameClock(a, b string) bool {
	_, known := g.skew(a, b)
	return known || g.procs[a].Host == g.procs[b].Host
}

// skew is by how much the clock of a's host is ahead of that of b's, from what
// one sent to the other last.
func (g *graph) skew(a, b string) (int64, bool) {
	var sum, n int64
	add := func(received, sent, sign int64) {
		if received != 0 && sent != 0 {
			sum, n = sum+sign*(received-sent), n+1
		}
	}
	sentAB, receivedAB := g.traffic(a, b)
	sentBA, receivedBA := g.traffic(b, a)
	add(receivedAB, sentBA, 1)
	add(receivedBA, sentAB, -1)
	if n == 0 {
		return 0, false
	}
	return sum / n, true
}

// traffic is when a last sent data to b, and received data from it.
func (g *graph) traffic(a, b string) (sent, received int64) {
	for _, e := range g.idle[a] {
		if e.to == b {
			sent, received = max(sent, e.stall.Sent), max(received, e.stall.Received)
		}
	}
	return sent, received
}

// who names a process in words.
func (g *graph) who(key string) string {
	p := g.procs[key]
	name := "rank " + strconv.Itoa(p.Rank)
	return name + " (" + cmp.Or(p.Process, "process") + ", pid " + strconv.FormatInt(p.PID, 10) + " on " + cmp.Or(p.Host, "an unnamed host") + ")"
}
