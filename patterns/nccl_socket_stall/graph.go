package ncclsocketstall

import (
	"cmp"
	"slices"
	"strconv"
)

// graph is who waits for whom in one job, at one moment.
type graph struct {
	j      *job
	active []*stall
	first  int64 // when the oldest of them was first reported
	onset  int64 // of the oldest

	ranks     map[rankOn]string // process of a rank on a host
	endpoints map[string]string // process that has a local address and port
	addresses map[string]string // process that alone has a local address; "" when several have
	out       map[string][]edge // by process: what it waits for
	idle      map[string][]edge // by process: its sockets with empty queues, in both directions
	reads     map[string]*stall // by process: the oldest stall in which it does not read itself
	open      bool              // some wait leads to a process that no record came from
}

type rankOn struct {
	host string
	rank int64
}

// edge is one wait of a process.
type edge struct {
	to     string // process, "" when none is known at the other end
	strong bool   // the kernel says that the other end holds it up
	stall  *stall
}

func newGraph(j *job) *graph {
	g := &graph{
		j: j, ranks: make(map[rankOn]string, len(j.Procs)), endpoints: make(map[string]string, len(j.Stalls)),
		addresses: make(map[string]string, len(j.Procs)), out: make(map[string][]edge, len(j.Procs)),
		idle: make(map[string][]edge, len(j.Procs)), reads: map[string]*stall{},
	}
	for key, p := range j.Procs {
		at := rankOn{p.Host, p.Rank}
		if other, taken := g.ranks[at]; !taken || j.newer(key, other) {
			g.ranks[at] = key
		}
	}
	for _, s := range j.Stalls {
		g.locate(s)
		if j.active(s) {
			g.active = append(g.active, s)
			g.first, g.onset = earliest(g.first, s.First), earliest(g.onset, s.Onset)
		}
	}
	for _, s := range g.active {
		g.connect(s)
	}
	for _, edges := range g.out {
		slices.SortFunc(edges, func(a, b edge) int {
			return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.stall.Peer, b.stall.Peer), cmp.Compare(a.stall.Cause, b.stall.Cause))
		})
	}
	return g
}

// newer reports whether process a was heard of later than b: a rank that was
// restarted has a new process.
func (j *job) newer(a, b string) bool {
	return cmp.Or(cmp.Compare(j.Procs[a].Last, j.Procs[b].Last), cmp.Compare(a, b)) > 0
}

// locate notes where the process of s can be reached.
func (g *graph) locate(s *stall) {
	if s.Local == "" {
		return
	}
	if other, taken := g.endpoints[s.Local]; !taken || s.Proc > other {
		g.endpoints[s.Local] = s.Proc
	}
	at := address(s.Local)
	switch other, taken := g.addresses[at]; {
	case !taken:
		g.addresses[at] = s.Proc
	case other != s.Proc:
		g.addresses[at] = ""
	}
}

// connect enters the wait that s shows, if it is one.
func (g *graph) connect(s *stall) {
	e := edge{stall: s}
	switch {
	case s.Cause == peerNotReading:
		e.strong = true
	case s.Cause == notReading:
		if known := g.reads[s.Proc]; known == nil || s.before(known) {
			g.reads[s.Proc] = s
		}
		return
	case s.Cause == waiting:
		e.to = g.peer(s)
		g.idle[s.Proc] = append(g.idle[s.Proc], e)
		if !s.Receive {
			return
		}
	case s.Cause == networkDown, s.Cause == connecting && !s.joining():
	default:
		return
	}
	e.to = g.peer(s)
	g.open = g.open || e.to == "" && s.Cause != networkDown && s.Cause != connecting
	g.out[s.Proc] = append(g.out[s.Proc], e)
}

// peer is the process at the other end of s: the rank that the record names, or
// whose socket has the mirrored addresses, or the only one at that address.
func (g *graph) peer(s *stall) string {
	if s.PeerRank >= 0 {
		return g.ranks[rankOn{g.j.Procs[s.Proc].Host, s.PeerRank}]
	}
	if s.Peer == "" {
		return ""
	}
	to, ok := g.endpoints[s.Peer]
	if !ok {
		to = g.addresses[address(s.Peer)]
	}
	if to == s.Proc {
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
	ranks := map[int64]bool{}
	world := unknown
	for _, p := range g.j.Procs {
		ranks[p.Rank] = true
		world = max(world, p.World)
	}
	return world > 0 && int64(len(ranks)) >= world
}

// silent is when a process last sent data, as far as that is known.
func (g *graph) silent(key string) int64 {
	p := g.j.Procs[key]
	if p.Sent != 0 {
		return p.Sent
	}
	return p.First
}

// Clock errors between hosts. A pair of idle sockets tells the difference of
// their clocks: the last byte that one sent is the last that the other received.
// What is left is the way through the network and a tick of the kernel's clock
// on both sides. Without such a pair NTP must do.
const (
	errorSameHost = int64(4e6)  // a tick at HZ=250
	errorPair     = int64(10e6) // two ticks and the way
	errorNTP      = int64(50e6)
)

// later returns by how much a fell silent after b, and how far that may be off.
func (g *graph) later(a, b string) (by, off int64) {
	by = g.silent(a) - g.silent(b)
	if g.j.Procs[a].Host == g.j.Procs[b].Host {
		return by, errorSameHost
	}
	if skew, ok := g.skew(a, b); ok {
		return by - skew, errorPair
	}
	return by, errorNTP
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

// joining reports whether s is of a rank that has yet to join its job.
func (s *stall) joining() bool { return s.Kind == "store" || s.Kind == "bootstrap" }

// who names a process.
func (p *proc) who() string {
	name := "rank " + strconv.FormatInt(p.Rank, 10)
	return name + " (" + cmp.Or(p.Process, "process") + ", pid " + strconv.FormatInt(p.PID, 10) + " on " + cmp.Or(p.Host, "an unnamed host") + ")"
}
