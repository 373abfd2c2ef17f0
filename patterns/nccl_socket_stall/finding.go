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
	attrGoesOn  = "nccl.wait.goes_on"   // of an end: that the rank which rested works
	attrHeld    = "nccl.wait.held"      // how it is held up
	attrKind    = "nccl.wait.kind"      // the same, but of a rank that makes progress, whose stack may say more
	attrRanks   = "nccl.wait.ranks"     // that wait
	attrCount   = "nccl.wait.count"     // how many
	attrShows   = "nccl.wait.shows"     // in plain words
	attrWhy     = "nccl.wait.why"       // what the kernel says of the culprit
	attrAdvice  = "nccl.wait.advice"    // which remedy fits
	attrMissing = "nccl.wait.missing"   // what would have made it certain
	attrAborts  = "nccl.wait.aborts"    // the job, whose ranks may die of this
	attrCertain = "nccl.wait.certain"   //
	attrPeer    = "nccl.wait.peer"      // the other end, address and port
	attrPeerAt  = "nccl.wait.peer_at"   // its host
	attrFar     = "nccl.wait.far_rank"  // its rank
	attrBehind  = "nccl.wait.behind"    // that a rank which no socket shows may be meant
	attrOrder   = "nccl.wait.order"     // of a silence, that it began before all others
	attrWay     = "nccl.wait.way"       // of a path, what the other direction does
	attrTied    = "nccl.wait.tied"      // ranks that fell silent at once
	attrPathAt  = "nccl.wait.path_from" // host of the near end, of a path
	attrChild   = "nccl.wait.child"     // that holds the culprit up
	attrChildAt = "nccl.wait.child_pid" //
	attrThread  = "nccl.wait.thread"    // of the culprit, that does not go on
	attrDevice  = "fuse.device"         // that holds the culprit
	attrGPU     = "gpu.id"              // of the culprit, when the kernel names it
	attrUnheard = "nccl.wait.unheard"   // since when the agent of the culprit is silent
	attrEdges   = "nccl.wait.edges"     // who waits for whom, as verdict.WriteWaits has it
)

// finding is c as a record.
func (c *conclusion) finding(g *graph) rule.Finding {
	p, name := g.procs[c.Culprit], g.j.stalls.Name
	ranks := c.waiters(g)
	a := map[string]any{
		attrKey: name, attrHeld: c.Held, attrShows: c.Shows, attrCertain: c.Certain,
		attrRanks: ranks, attrCount: len(ranks), attrWhy: c.why(p), attrAdvice: c.advice(p),
	}
	if c.Held != heldWorks {
		a[attrKind] = c.Held
	}
	resource := map[string]any{}
	put := func(to map[string]any, key, value string) {
		if value != "" {
			to[key] = value
		}
	}
	put(a, attrMissing, c.Missing)
	put(a, attrEdges, g.waits(c))
	put(a, attrWay, c.Way)
	if c.Held == heldSilent && c.First == c.Culprit {
		a[attrOrder] = "fell silent first"
	}
	if c.Behind != "" {
		a[attrBehind] = "a rank behind it"
	}
	if len(c.Tied) > 0 {
		a[attrTied] = numbers(c.Tied)
	}
	if c.aborts {
		a[attrAborts] = cmp.Or(g.j.stalls.ID, name)
	}
	put(a, "gen_ai.training.job_id", g.j.stalls.ID)
	put(a, "gen_ai.training.job_domain", g.j.stalls.Domain)
	put(a, rule.AttributeRun, g.j.stalls.Run)
	switch c.Held {
	case heldUnseen, heldMissing, heldTied: // nobody is named
	case heldDead:
		put(resource, "host.name", c.Fact.Host)
		a["gen_ai.training.rank"], a["process.pid"] = int64(c.Fact.Rank), c.Fact.Of
		putStart(a, c.Fact.Started)
		put(a, rule.AttributeRankRun, c.Fact.Run)
	default:
		put(resource, "host.name", p.Host)
		put(resource, "k8s.node.name", p.Node)
		put(a, "process.executable.name", p.Process)
		put(a, "k8s.pod.uid", p.Pod)
		put(a, "k8s.namespace.name", p.Namespace)
		put(a, "k8s.pod.name", p.PodName)
		put(a, "k8s.workload", p.Workload)
		put(a, "container.id", p.Container)
		a["process.pid"], a["gen_ai.training.rank"] = p.PID, int64(p.Rank)
		putStart(a, p.Started)
		put(a, rule.AttributeRankRun, p.Run)
		put(a, attrUnheard, g.silence(c.Culprit))
	}
	if g.drill() {
		a[rule.AttributeDrill] = true
	}
	if c.Fact != nil {
		put(a, attrDevice, c.Fact.Device)
		put(a, attrGPU, c.Fact.GPU)
	}
	if c.Held == heldPath {
		put(a, attrPathAt, p.Host)
	}
	if (c.Held == heldSilent || c.Held == heldReading) && c.Fact == nil && p.Doing.Waits() != "" {
		put(a, attrChild, p.Doing.Child)
		a[attrChildAt] = p.Doing.ChildPID
	}
	if a[attrAdvice] == adviceThread {
		a[attrThread] = p.Doing.Thread.TID
	}
	if c.Stall != nil && (c.nobody() || c.Held == heldPath || c.Held == heldRefused) {
		put(a, attrPeer, address(c.Stall.Peer, ""))
		if far := g.peer(c.Stall); far != "" {
			put(a, attrPeerAt, g.procs[far].Host)
			a[attrFar] = int64(g.procs[far].Rank)
		} else if c.Stall.PeerRank >= 0 {
			put(a, attrPeerAt, p.Host)
			a[attrFar] = int64(c.Stall.PeerRank)
		} else if c.Far >= 0 && (c.Held == heldMissing || c.Held == heldDead) {
			a[attrFar] = int64(c.Far)
		}
	}
	c.said = fmt.Sprint(c.aborts, c.Held, c.Way, c.Culprit, c.Certain, c.Shows, c.Missing, c.Behind, a[attrWhy], a[attrDevice], a[attrGPU], a[attrPeer], a[attrEdges], a[attrUnheard], ranks, c.Fact != nil && c.Fact.Late)
	return rule.Finding{Event: eventCulprit, ID: name, Time: c.since(g), Late: c.Fact != nil && c.Fact.Late, Resource: resource, Attributes: a}
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
	return c.Held == heldUnseen || c.Held == heldMissing || c.Held == heldDead || c.Held == heldTied
}

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
		return "computing or stuck in its own code, the kernel knows of no fault"
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
