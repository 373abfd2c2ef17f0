package ncclsocketstall

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Attributes of findings beside those of identity.
const (
	attrKey     = "nccl.wait.job"       // key of the fault: the job, or its host
	attrGoesOn  = "nccl.wait.goes_on"   // of an end: the rank that rested works
	attrClosed  = "nccl.wait.closed"    // of an end: ranks have closed the sockets, and nothing has moved
	attrHeld    = "nccl.wait.held"      // how the culprit is held up
	attrKind    = "nccl.wait.kind"      // the same, absent where the culprit makes progress: its stack may say more
	attrRanks   = "nccl.wait.ranks"     // the ranks that wait
	attrCount   = "nccl.wait.count"     // how many wait
	attrShows   = "nccl.wait.shows"     // what the sockets show, in plain words
	attrWhy     = "nccl.wait.why"       // what the kernel says of the culprit
	attrAdvice  = "nccl.wait.advice"    // which remedy fits
	attrMissing = "nccl.wait.missing"   // what would have made it certain
	attrAborts  = "nccl.wait.aborts"    // the job, whose ranks may die of this
	attrCertain = "nccl.wait.certain"   // whether nobody else can be meant
	attrPeer    = "nccl.wait.peer"      // the other end, address and port
	attrPeerAt  = "nccl.wait.peer_at"   // its host
	attrFar     = "nccl.wait.far_rank"  // its rank
	attrBehind  = "nccl.wait.behind"    // set where the cause may be a rank that no socket shows
	attrWatched = "nccl.wait.watched"   // of a rank that was found silent and whose usual pauses are not known: for how long it has been watched, in words
	attrOrder   = "nccl.wait.order"     // of a silence: why the others wait for the culprit
	attrByOrder = "nccl.wait.by_order"  // set where nothing but who fell silent first, and who owes data, tells of the culprit
	attrWay     = "nccl.wait.way"       // of a path: what the other direction does
	attrTied    = "nccl.wait.tied"      // ranks that fell silent at once, or are stopped or frozen together
	attrPathAt  = "nccl.wait.path_from" // of a path: host of the near end
	attrChild   = "nccl.wait.child"     // the child that holds the culprit up
	attrChildAt = "nccl.wait.child_pid" // the pid of that child
	attrThread  = "nccl.wait.thread"    // the thread of the culprit that does not go on
	attrDevice  = "fuse.device"         // the mount that holds the culprit up
	attrGPU     = "gpu.id"              // the GPU of the culprit, where the kernel names it
	attrUnheard = "nccl.wait.unheard"   // since when the agent of the culprit is silent
	attrAbsent  = "nccl.wait.absent"    // of which no record came, and one of which is at the other end
	attrEdges   = "nccl.wait.edges"     // who waits for whom, as verdict.WriteWaits has it
)

// finding is c as a record.
func (c *conclusion) finding(g *graph) rule.Finding {
	p, name := g.procs[c.Culprit], g.j.stalls.Name
	ranks := c.waiters(g)
	resource, a := map[string]any{}, map[string]any{
		attrKey: name, attrHeld: c.Held, attrShows: c.Shows, attrCertain: c.Certain,
		attrRanks: ranks, attrCount: len(ranks), attrWhy: c.why(p), attrAdvice: c.advice(p),
	}
	c.putJob(a, g)
	c.putStandstill(a, g)
	c.putCulprit(resource, a, g)
	c.putReason(a, p)
	c.putPeer(a, g)
	late := c.Fact != nil && c.Fact.Late
	c.said = fmt.Sprint(c.aborts, c.early, c.Held, c.Way, c.Culprit, c.Certain, c.Order, c.Shows, c.Missing, c.Behind, a[attrWhy], a[attrDevice], a[attrGPU], a[attrPeer], a[attrEdges], a[attrUnheard], a[attrAbsent], ranks, late)
	return rule.Finding{Event: eventCulprit, ID: name, Time: c.since(g), Late: late, Resource: resource, Attributes: a}
}

// putText sets an attribute that is known.
func putText(to map[string]any, key, value string) {
	if value != "" {
		to[key] = value
	}
}

// putJob says which start of which job stands still.
func (c *conclusion) putJob(a map[string]any, g *graph) {
	putText(a, "gen_ai.training.job_id", g.j.stalls.ID)
	putText(a, "gen_ai.training.job_domain", g.j.stalls.Domain)
	putText(a, rule.AttributeRun, g.j.stalls.Run)
	if c.aborts {
		a[attrAborts] = cmp.Or(g.j.stalls.ID, g.j.stalls.Name)
	}
	if g.drill() {
		a[rule.AttributeDrill] = true
	}
}

// putStandstill says how the job stands, and what is not known of it.
func (c *conclusion) putStandstill(a map[string]any, g *graph) {
	if c.Held != heldWorks && !c.early {
		a[attrKind] = c.Held
	}
	putText(a, attrMissing, c.Missing)
	putText(a, attrEdges, g.waits(c))
	putText(a, attrWay, c.Way)
	if c.Held == heldPath {
		putText(a, attrPathAt, g.procs[c.Culprit].Host)
	}
	if c.Held == heldSilent {
		putText(a, attrOrder, c.Order)
		putText(a, attrWatched, g.watched(c.Culprit))
	}
	if c.Behind != "" {
		a[attrBehind] = "a rank behind it"
	}
	if len(c.Tied) > 0 {
		a[attrTied] = numbers(c.Tied)
	}
	if len(c.Absent) > 0 {
		a[attrAbsent] = numbers(c.Absent)
	}
	if g.byOrder(c) {
		a[attrByOrder] = true
	}
}

// watched is for how long a rank has been watched that was found silent and whose usual pauses are not known; "" else.
func (g *graph) watched(key string) string {
	d := &g.procs[key].Doing
	if d.Watched == 0 || d.Learned || d.Watched-g.silent(key) <= tolerance {
		return ""
	}
	return fmt.Sprintf("%.0f s", float64(d.At-d.Watched)/1e9)
}

// byOrder reports whether nothing but the order of silences tells of the culprit.
func (g *graph) byOrder(c *conclusion) bool {
	return c.several() || (c.Held == heldSilent || c.Held == heldWorks) && c.Fact == nil && !g.blocked(c.Culprit)
}

// putCulprit names the process that the others wait for, where there is one.
func (c *conclusion) putCulprit(resource, a map[string]any, g *graph) {
	switch p := g.procs[c.Culprit]; c.Held {
	case heldUnseen, heldMissing, heldTied, heldAsleep: // nobody is named
	case heldDead:
		putText(resource, "host.name", c.Fact.Host)
		a["gen_ai.training.rank"], a["process.pid"] = int64(c.Fact.Rank), c.Fact.Of
		putStart(a, c.Fact.Started)
		putText(a, rule.AttributeRankRun, c.Fact.Run)
	default:
		putText(resource, "host.name", p.Host)
		putText(resource, "k8s.node.name", p.Node)
		putText(a, "process.executable.name", p.Process)
		putText(a, "k8s.pod.uid", p.Pod)
		putText(a, "k8s.namespace.name", p.Namespace)
		putText(a, "k8s.pod.name", p.PodName)
		putText(a, "k8s.workload", p.Workload)
		putText(a, "container.id", p.Container)
		a["process.pid"], a["gen_ai.training.rank"] = p.PID, int64(p.Rank)
		putStart(a, p.Started)
		putText(a, rule.AttributeRankRun, p.Run)
		putText(a, attrUnheard, g.silence(c.Culprit))
	}
}

// putReason names what holds the culprit up: a device, a GPU, a child or a thread.
func (c *conclusion) putReason(a map[string]any, p *socketstall.Process) {
	if c.Fact != nil {
		putText(a, attrDevice, c.Fact.Device)
		putText(a, attrGPU, c.Fact.GPU)
	}
	if (c.Held == heldSilent || c.Held == heldReading) && c.Fact == nil && p.Doing.Waits() != "" {
		putText(a, attrChild, p.Doing.Child)
		a[attrChildAt] = p.Doing.ChildPID
	}
	if a[attrAdvice] == adviceThread {
		a[attrThread] = p.Doing.Thread.TID
	}
}

// putPeer names the other end of the connection that stands, where it is not the culprit itself.
func (c *conclusion) putPeer(a map[string]any, g *graph) {
	if c.Stall == nil || !c.nobody() && c.Held != heldPath && c.Held != heldRefused && c.Held != heldOutside {
		return
	}
	putText(a, attrPeer, address(c.Stall.Peer, ""))
	if far := g.peer(c.Stall); far != "" {
		putText(a, attrPeerAt, g.procs[far].Host)
		a[attrFar] = int64(g.procs[far].Rank)
	} else if c.Stall.PeerRank >= 0 {
		putText(a, attrPeerAt, g.procs[c.Culprit].Host)
		a[attrFar] = int64(c.Stall.PeerRank)
	} else if c.Far >= 0 && (c.Held == heldMissing || c.Held == heldDead) {
		a[attrFar] = int64(c.Far)
	}
}

// silence is since when the agent of a process is silent, while others see the process stand; "" where it is not.
func (g *graph) silence(key string) string {
	since := g.unheard[key]
	if since == 0 {
		return ""
	}
	return time.Unix(0, since).UTC().Format(time.RFC3339)
}

// putStart says when the process was started, where that is known.
func putStart(a map[string]any, started int64) {
	if started != 0 {
		a["process.start_ns"] = started
	}
}

// since is when the ranks began to wait for what c names. A rank that has died may have paused
// in health before: what they wait for is its death since.
func (c *conclusion) since(g *graph) int64 {
	if c.Held == heldDead && c.Fact != nil {
		return max(g.onset, c.Fact.Onset)
	}
	return g.onset
}

// nobody reports whether the culprit is the process that waits, for want of a better.
func (c *conclusion) nobody() bool {
	return c.Held == heldUnseen || c.Held == heldMissing || c.Held == heldDead || c.several()
}

// several reports whether c is about several ranks, none of which is named.
func (c *conclusion) several() bool { return c.Held == heldTied || c.Held == heldAsleep }

// text is all that the finding of c says.
func (c *conclusion) text() string { return c.said }

// why is what the kernel knows of the reason.
func (c *conclusion) why(p *socketstall.Process) string {
	switch {
	case c.Held == heldPath || c.Held == heldRefused || c.Held != heldDead && c.nobody():
		return ""
	case c.Held == heldWorks:
		return doing(p)
	case c.Fact != nil:
		return c.Fact.Text
	case c.Held == heldFrozen:
		return "a freezer holds its cgroup (docker pause, a checkpoint of the container)"
	case c.Held == heldStopped && p.State == socketstall.Zombie:
		return "its main thread has ended, and its process not"
	case c.Held == heldStopped && p.Doing.Stopper != "":
		return "its process is stopped (" + p.Doing.Stopper + ")"
	case c.Held == heldStopped:
		return "its process is stopped (SIGSTOP or a debugger)"
	case p.Doing.Activity != "":
		return doing(p)
	case p.State == socketstall.DiskSleep:
		return "its main thread sleeps in the kernel (D): a file system or a driver does not answer"
	case c.Behind != "":
		return ""
	default:
		return "what it does is not known, the kernel knows of no fault"
	}
}

// waiters are the ranks that wait, for whomever; of a path both ends too.
func (c *conclusion) waiters(g *graph) []any {
	var ranks []int
	path := c.Held == heldPath || c.Held == heldRefused
	for key := range g.out {
		if key != c.Culprit || path || c.nobody() {
			ranks = append(ranks, g.procs[key].Rank)
		}
	}
	if path {
		if far := g.peer(c.Stall); far != "" {
			ranks = append(ranks, g.procs[far].Rank)
		}
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	return numbers(ranks)
}

func numbers(ranks []int) []any {
	list := make([]any, len(ranks))
	for i, rank := range ranks {
		list[i] = int64(rank)
	}
	return list
}
