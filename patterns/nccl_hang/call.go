package ncclhang

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The events of the ncclcall receiver. Each is told once, when something changes.
const (
	eventCallStopped = "nccl.call.stopped"      // a process calls no more on a communicator
	eventCallMoving  = "nccl.call.moving"       // it calls again
	eventCallEnd     = "nccl.call.end"          // the communicator is ended, or its process
	eventCallDoing   = "nccl.call.doing"        // the process does something else than was told
	eventCallInit    = "nccl.call.init.waiting" // it waits in a function that makes a communicator
	eventCallReady   = "nccl.call.init.done"    // it does not any more
	eventCallLimited = "nccl.call.limited"      // calls of the process are not counted for a while, or are again
)

var callEvents = []string{eventCallStopped, eventCallMoving, eventCallEnd, eventCallDoing, eventCallInit, eventCallReady, eventCallLimited, rule.EventStack, eventDoes, rule.EventStackMoving, rule.EventExit, rule.EventGone, rule.EventAsked}

// callAttributes are what is read of them, beside identity and what a process does.
var callAttributes = slices.Concat(rule.StopAttributes, []string{
	"gen_ai.training.rendezvous", "process.exit.signal_name",
	"nccl.call.aligned", "nccl.call.collectives", "nccl.call.comm", "nccl.call.comm_rank", "nccl.call.comm_size", "nccl.call.end_reason", "nccl.call.exact", "nccl.call.function",
	"nccl.call.graph_launches", "nccl.call.group_depth", "nccl.call.last_operation", "nccl.call.last_root", "nccl.call.last_unix_nano", "nccl.call.limit", "nccl.call.recent",
	"nccl.call.unidentified", "nccl.call.waited_ns",
})

// Why not all calls of a process are seen: NCCL is linked into its program, or its GPUs communicate
// by themselves.
const (
	unseenStatic = "static"
	unseenGPU    = "gpu_initiated"
)

// madeOf are the functions that make a communicator of another, and how that is called. Their records
// name the other one, and the rank and size in that: all of its ranks call them.
var madeOf = map[string]string{"ncclCommSplit": "split", "ncclCommShrink": functionShrink, "ncclCommGrow": "grow"}

const functionShrink = "shrink"

// Bounds of one record.
const (
	maxCallWindow = 32 // of the last collectives
	maxCallText   = 64 // of one of them: number, operation, count and type
	maxCallName   = 24 // of a communicator: 0x and 16 digits
)

// callRecord is one record of a process and one of its communicators.
type callRecord struct {
	event                 string
	at                    int64
	run, job, domain      string
	world                 int
	host                  socketstall.Identity
	rank                  int // in the job, -1 where nothing says it
	comm                  string
	commRank, commSize    int
	number                int64 // collectives until now; of those in an open group the last does not count
	grouped               bool  // the last is in a group that has not ended: NCCL has launched none of it
	exact                 bool
	aligned               bool  // its number is that of NCCL itself
	last                  int64 // time of the last call
	operation             string
	peer                  int // of a send or receive, as a rank of the communicator; -1
	graphs, exited        bool
	left                  bool // its process has ended the communicator
	function              string
	since                 int64 // of an init
	window                []calledAt
	state                 socketstall.State
	doing                 socketstall.Doing
	unidentified, limited bool
	unseen                string     // why not all calls of the process are seen, as long as it lives
	gpu                   string     // PCI address of the one that the communicator is for
	stack                 stackPlace // of a record of a stack alone
	moving                int64      // of sockets that are watched: since when, where all ranks of the host have moved data since
	end                   string     // of a record of the end of a process: how it ended
	stops                 bool       // somebody ends the job, by the end of one of its ranks, or by what one was asked
}

// calledAt is one of the last collectives of a communicator: its number from 0, and
// operation, count and type.
type calledAt struct {
	number int64
	what   string
}

// parseCall reads a record; ok is false where it does not say whose it is, or when.
func parseCall(event string, at int64, resource, a pcommon.Map) (c callRecord, ok bool) {
	c = callRecord{event: event, at: at, host: socketstall.IdentityOf(resource, a), rank: -1, peer: -1}
	if at <= 0 || c.host.Host == "" {
		return c, false
	}
	if event == eventCallLimited {
		limit := str(a, "nccl.call.limit")
		c.limited = limit == "calls" // sends and receives alone change no number
		if limit == unseenStatic || limit == unseenGPU {
			c.unseen = limit
		}
		return c, c.host.PID > 0
	}
	if rank, says := socketstall.Rank(a, rule.AttributeRank); says {
		c.rank = rank
	}
	c.job, c.domain, c.world = cmp.Or(str(a, "gen_ai.training.job_id"), str(a, "gen_ai.training.rendezvous")), str(a, "gen_ai.training.job_domain"), socketstall.World(a)
	// Ranks without an id are told apart by host at least.
	c.run = socketstall.JobName(cmp.Or(c.job, "host "+c.host.Host), c.domain)
	c.state, c.doing = socketstall.StateOf(a), socketstall.DoingOf(a, at)
	if c.host.PID <= 0 {
		return c, false
	}
	if c.ofStack() {
		c.stack = stackOf(event, at, a)
		return c, c.rank >= 0
	}
	if event == rule.EventGone {
		c.end = "no agent watched"
		return c, true
	}
	if event == rule.EventExit {
		c.end = cmp.Or(str(a, "process.exit.signal_name"), "exit status "+rule.Text(a, "process.exit.code"))
		c.stops = rule.JobStopped(a)
		return c, true
	}
	if event == rule.EventAsked {
		c.stops = rule.JobAsked(a)
		return c, c.stops
	}
	if event == socketstall.EventWatched {
		c.moving = socketstall.MovingSince(a, at)
		return c, true
	}
	return c, event == eventCallDoing || c.readCommunicator(a)
}

// ofStack reports whether it tells of a stack, and nothing of calls.
func (c *callRecord) ofStack() bool {
	return c.event == rule.EventStack || c.event == eventDoes || c.event == rule.EventStackMoving
}

// readCommunicator reads which communicator it is, and where the process stands in it.
func (c *callRecord) readCommunicator(a pcommon.Map) bool {
	c.comm, c.unidentified = str(a, "nccl.call.comm"), str(a, "nccl.call.unidentified") != ""
	rank, hasRank := socketstall.Rank(a, "nccl.call.comm_rank")
	size, hasSize := socketstall.Rank(a, "nccl.call.comm_size")
	if c.comm == "" || c.unidentified {
		c.unidentified = true
		return true // somebody calls, and nobody knows who: that is said
	}
	if len(c.comm) > maxCallName || !hasRank || !hasSize || rank >= size {
		return false
	}
	c.commRank, c.commSize, c.gpu = rank, size, str(a, "gpu.id")
	c.number, _ = whole(a, "nccl.call.collectives")
	c.last, _ = whole(a, "nccl.call.last_unix_nano")
	c.exact, c.aligned, c.operation = truth(a, "nccl.call.exact"), truth(a, "nccl.call.aligned"), str(a, "nccl.call.last_operation")
	reason := str(a, "nccl.call.end_reason")
	c.exited, c.left, c.function = reason == "exited", reason == "destroyed" || reason == "aborted", str(a, "nccl.call.function")
	if made := madeOf[c.function]; made != "" && (c.event == eventCallInit || c.event == eventCallReady) {
		c.comm += "/" + made
	}
	if peer, says := socketstall.Rank(a, "nccl.call.last_root"); says && (c.operation == "Send" || c.operation == "Recv") {
		c.peer = peer
	}
	launches, _ := whole(a, "nccl.call.graph_launches")
	waited, _ := whole(a, "nccl.call.waited_ns")
	c.graphs, c.since = launches > 0, c.at-max(0, min(waited, c.at))
	if c.number < 0 || c.last < 0 || c.last > c.at+int64(maxSkew) {
		return false
	}
	c.readWindow(a)
	if open, _ := whole(a, "nccl.call.group_depth"); open > 0 && c.number > 0 && c.peer < 0 {
		c.number, c.grouped = c.number-1, true
	}
	return true
}

// readWindow reads the last collectives; what is no such text is left out.
func (c *callRecord) readWindow(a pcommon.Map) {
	list, found := a.Get("nccl.call.recent")
	if !found || list.Type() != pcommon.ValueTypeSlice || list.Slice().Len() > maxCallWindow {
		return
	}
	for _, v := range list.Slice().All() {
		if v.Type() != pcommon.ValueTypeStr || len(v.Str()) > maxCallText {
			continue
		}
		number, what, _ := strings.Cut(v.Str(), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err == nil && n >= 0 && n < c.number && what != "" {
			c.window = append(c.window, calledAt{n, what})
		}
	}
}

// inWords is a collective as people write it: AllReduce, and "4,096 x bf16".
func inWords(what string) (operation, elements string) {
	parts := strings.Fields(what)
	if len(parts) == 0 {
		return "", ""
	}
	if len(parts) != 3 {
		return socketstall.Clip(parts[0]), ""
	}
	return socketstall.Clip(parts[0]), thousands(parts[1]) + " x " + socketstall.Clip(parts[2])
}

// thousands puts commas into a number.
func thousands(digits string) string {
	if strings.Trim(digits, "0123456789") != "" {
		return socketstall.Clip(digits)
	}
	return verdict.Thousands(digits)
}
