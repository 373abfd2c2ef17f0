package ncclhang

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	starts "github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Kind says in which way a collective is incomplete.
type Kind string

// The kinds, the surest first.
const (
	// NotEntered: some ranks wait in it, the culprits never entered it.
	NotEntered Kind = "not_entered"
	// Mismatch: the culprits entered something else under its number.
	Mismatch Kind = "mismatch"
	// NotStarted: all entered it, and on the culprits' GPU alone it has not
	// begun (state scheduled where others have started).
	NotStarted Kind = "not_started"
	// NoDump: who sent a dump entered it; what the culprits did is not known.
	NoDump Kind = "no_dump"
	// Stuck: all entered the same and it does not finish.
	Stuck Kind = "stuck"
)

// The kinds that calls alone tell, without a dump.
const (
	// NotCalled: some ranks have called it, the culprits have not, and do nothing.
	NotCalled Kind = "not_called"
	// Works: the same, but the culprit makes progress. It is no fault.
	Works Kind = "works"
	// NotInitialized: the culprits have not called the function that makes the
	// communicator, in which the others wait.
	NotInitialized Kind = "not_initialized"
	// AllCalled: all have called the same, and none goes on.
	AllCalled Kind = "all_called"
	// Halted: the culprits cannot go on by themselves, and all others wait. Whether they have called
	// the same is not known, or they have.
	Halted Kind = "halted"
	// NoCall: some ranks stand in it, and of others no record came.
	NoCall Kind = "no_call"
)

// Circle is told by dumps and by calls: ranks wait in one collective for others, and these in
// another one for them.
const Circle Kind = "circle"

// The kinds that stacks alone tell, without a call that is seen.
const (
	// Outside: the culprits stand outside of the collective in which all others wait.
	Outside Kind = "outside"
	// OutsideWorks: the same, but they make progress. It is no fault.
	OutsideWorks Kind = "outside_works"
	// OneMount: the culprits wait for one file system, and all others for them.
	OneMount Kind = "one_mount"
	// NameServer: the culprits wait for the answer of a name server, and all others for them.
	NameServer Kind = "name_server"
	// AllWait: all wait in a collective or for their GPU, and none goes on.
	AllWait Kind = "all_wait"
	// Apart: the same, and by their calls some lack one that others have made, or few wait in a collective at another place of the program.
	Apart Kind = "apart"
	// EachOther: all wait in collectives, and not for the same: in different ones, or in sends and receives.
	EachOther Kind = "each_other"
)

// ofStacks reports whether stacks alone tell it.
func (f *Finding) ofStacks() bool {
	return f.Kind == Outside || f.Kind == OutsideWorks || f.Kind == OneMount || f.Kind == NameServer || f.Kind == AllWait || f.Kind == Apart || f.Kind == EachOther || f.atStart()
}

// atStart reports whether it is about a job that does not come together.
func (f *Finding) atStart() bool { return f.Kind == Gathers || f.Kind == Absent }

// Sureness says how far a finding can be relied on.
type Sureness string

// The degrees.
const (
	Certain Sureness = "certain" // every member of the group is accounted for
	Likely  Sureness = "likely"  // what is said is so, there may be more to it
	Unsure  Sureness = "unsure"  // an indication
)

// Finding is one incomplete collective.
type Finding struct {
	Kind Kind
	ID   string
	Run  string
	// Process is the outermost process of the rank to blame, in that start of the job; zero
	// where nobody has told of it.
	Process starts.Process
	Job     string
	Domain  string // of the job, "" where nothing says it
	World   int    // 0: not known
	Group   string
	Desc    string

	Operation string // all_reduce
	P2P       bool
	Seq       int64
	Waiting   []int // entered and not finished
	Culprits  []int // by kind: did not enter, mismatch, did not start
	NoDump    []int // members that sent none
	Members   int
	Affected  []int // all ranks that wait for this, through other groups too
	// Downstream counts the incomplete collectives of other groups that this one
	// explains.
	Downstream int

	What    string   // of a mismatch: operation, sizes, types, order, peer, root
	Detail  string   // in words
	Code    []string // where the waiting ranks are
	Last    []string // where the first culprit was last seen
	Behind  int64    // collectives that the first culprit lacks
	Since   time.Time
	Waited  time.Duration // the longest, at the time of its dump
	Sure    Sureness
	Because []string             // why it is not certain
	Host    socketstall.Identity // of the first culprit, where its dump or its sockets said

	Sockets Agreement // what the sockets of the job say to it
	Held    []int     // ranks that they single out
	Alive   []int     // of NoDump, those whose sockets stall: they live
	Ended   []int     // of NoDump, those whose process had ended
	ended   bool      // the processes of the culprits have ended, and stacks say that the others wait
	Stalls  string    // all that in words
	rank    int       // the first culprit, -1 for none

	// Of what calls tell.
	Comm     string // communicator
	Local    bool   // ranks are those of the communicator: of the job's nobody knows
	Elements string // 4,096 x bf16
	Called   int    // ranks that have called it
	CalledBy string // that in words
	Does     string // what the first culprit does instead
	Grouped  bool   // the culprits have called it in a group that has not ended
	Pending  bool   // it may still be healthy: it explains others, and is not told
	From     []int  // ranks from which culprits asked for data last
	Stop     string // names the standstill, "" of what dumps alone tell
	Mount    string // that the culprits wait for, where stacks tell it
	In       string // where the others wait, by their stacks: the store, or the function that all have called; "" in collectives or for their GPUs

	// What leads on from the culprits.
	wait      bool // by their stacks they wait themselves: it is told only as part of a circle
	halted    bool // the rank of Does cannot go on by itself
	elsewhere bool // one of them is stopped, or stands outside of collectives: it waits for no rank

	// Of what GPUs tell, where nobody is to blame by calls and stacks.
	stands []*caller // who stands where all should
	GPU    string    // where they say the fault is, "" where that is not clear
	GPUs   string    // all that they say, in words
	Device string    // PCI address of the GPU to blame

	// Hosts are the machines of the ranks that wait, where they are several and no rank is to blame:
	// what is wrong is on one of them, or between them. maxHosts of them, in order.
	Hosts []string
}

// maxHosts bounds the hosts of a finding, as many as the engine keeps of a list.
const maxHosts = 1024

// between says on which machines the ranks are of whom none is to blame: the one, or the several.
func between[T any](f *Finding, ranks iter.Seq[T], where func(T) socketstall.Identity) {
	hosts := map[string]struct{}{}
	var last socketstall.Identity
	for one := range ranks {
		if at := where(one); at.Host != "" {
			last, hosts[at.Host] = at, struct{}{}
		}
	}
	switch len(hosts) {
	case 0:
	case 1:
		f.Host.Host, f.Host.Node = last.Host, last.Node
	default:
		all := slices.Sorted(maps.Keys(hosts))
		f.Hosts = all[:min(len(all), maxHosts)]
	}
}

// Rank returns the first culprit: one that sent no dump, or that the sockets single
// out, only where nobody else is to blame. -1 for none.
func (f *Finding) Rank() int { return f.rank }

// GroupName is how a person calls the group.
func (f *Finding) GroupName() string { return groupName(f.Group, f.Desc) }

func groupName(group, desc string) string {
	if desc == "" || desc == "undefined" {
		return "group " + group
	}
	return desc
}

// identify gives the finding its id: the same incomplete collective in a later
// round has the same.
func (f *Finding) identify() {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %d %t", f.Run, f.Group, f.Desc, f.Seq, f.P2P)
	if f.P2P {
		fmt.Fprintf(h, " %v", f.Culprits)
	}
	f.ID = fmt.Sprintf("col-%016x", h.Sum64())
}

// doubt lowers how sure a finding is, with the reason.
func (f *Finding) doubt(to Sureness, because string) {
	degrees := []Sureness{Certain, Likely, Unsure}
	if slices.Index(degrees, to) > slices.Index(degrees, f.Sure) {
		f.Sure = to
	}
	f.Because = append(f.Because, because)
}

// String says it in one line.
func (f *Finding) String() string {
	if f.Kind == Circle || f.Kind == EachOther {
		return f.Detail
	}
	if f.Comm != "" && f.Kind != Mismatch {
		return f.callText()
	}
	if f.ofStacks() {
		return f.stackText()
	}
	op := fmt.Sprintf("%s #%d of %s", cmp.Or(f.Operation, "a collective"), f.Seq, f.GroupName())
	var text string
	switch f.Kind {
	case NotEntered:
		text = fmt.Sprintf("%s never entered %s; %s", subject(f.Culprits), op, waiters(f.Waiting))
	case Mismatch:
		text = fmt.Sprintf("%s entered something else than its peers under %s: %s", subject(f.Culprits), op, f.Detail)
		if len(f.Culprits) == 0 {
			text = fmt.Sprintf("the ranks disagree about %s: %s", op, f.Detail)
		}
	case NotStarted:
		text = fmt.Sprintf("%s entered %s, but its GPU has not begun it; %s", subject(f.Culprits), op, waiters(f.Waiting))
	case NoDump:
		return fmt.Sprintf("%s in %s%s; %s sent no dump", waiters(f.Waiting), op, tail(f), subject(f.NoDump))
	case Stuck:
		text = fmt.Sprintf("all ranks entered %s and it does not finish; %s", op, waiters(f.Waiting))
	}
	return text + tail(f)
}

func tail(f *Finding) string {
	if len(f.Code) > 0 {
		return " at " + f.Code[0]
	}
	return ""
}

func subject(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + ranksInWords(ranks)
	}
	return "ranks " + ranksInWords(ranks)
}

func waiters(ranks []int) string {
	switch len(ranks) {
	case 0:
		return "nobody waits in it"
	case 1:
		return "rank " + ranksInWords(ranks) + " waits"
	default:
		return "ranks " + ranksInWords(ranks) + " wait"
	}
}

// ranksInWords writes sorted ranks as "0-3, 8", of many parts the first and the
// number of ranks.
func ranksInWords(ranks []int) string {
	const most = 12
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		part := fmt.Sprint(ranks[i])
		if j > i {
			part = fmt.Sprintf("%d-%d", ranks[i], ranks[j])
		}
		if parts = append(parts, part); len(parts) == most && j+1 < len(ranks) {
			return strings.Join(parts, ", ") + fmt.Sprintf(", … (%s ranks)", verdict.Number(len(ranks)))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
