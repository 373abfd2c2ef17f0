package history

import (
	"iter"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// States of a rank, the worst first. They are what records say of it; whose fault a stall
// is, verdicts say.
const (
	RankBlocked = "blocked" // a request of it to a mount is not answered
	RankDied    = "died"    // it ended, and not with exit code 0
	RankSilent  = "silent"  // it stood still, and nothing was told of it since
	RankUnseen  = "unseen"  // its job says that there is such a rank, and nothing was told of it
	RankWaits   = "waits"   // connections of it stand still
	RankGoesOn  = "goes_on" // it began, and nothing tells of a stall or of its end
	RankEnded   = "ended"   // it ended with exit code 0, or nobody saw how
)

// RankStates are all states, the worst first.
var RankStates = []string{RankBlocked, RankDied, RankSilent, RankUnseen, RankWaits, RankGoesOn, RankEnded}

// Ranks answers GET /v1/ranks: the jobs whose ranks are known, the newest first. With
// ?job= each has its nodes and groups, with ?rank= also that rank.
type Ranks struct {
	Head
	Jobs []RankJob `json:"jobs"`
}

// RankJob is how the ranks of the newest start of a job fare.
type RankJob struct {
	Job     string         `json:"job"`
	Domain  string         `json:"job_domain,omitempty"`
	Run     string         `json:"run_id,omitempty"`
	Trust   verdict.Trust  `json:"trust"`
	Drill   bool           `json:"drill,omitempty"`
	Began   *time.Time     `json:"began,omitempty"`
	Updated time.Time      `json:"updated"` // event time of the newest record
	World   int            `json:"world_size,omitempty"`
	Hosts   int            `json:"hosts_count"`
	Counts  map[string]int `json:"counts"` // by state
	// Since is when the oldest stall began that lasts.
	Since *time.Time `json:"since,omitempty"`
	// Steps are those of its ranks lately, where its code tells of them: the median.
	Steps *Steps `json:"steps,omitempty"`
	// Sends is how much its ranks send on sockets, in bytes a second; absent where nothing tells.
	Sends *float64 `json:"sends_bytes_per_second,omitempty"`

	Groups []RankGroup `json:"groups,omitempty"`
	Nodes  []RankNode  `json:"nodes,omitempty"` // by their first rank
	// Rank is the one that was asked for.
	Rank *RankDetail `json:"rank,omitempty"`
}

// RankGroup is the ranks in one state that wait for the same.
type RankGroup struct {
	State string     `json:"state"`
	What  string     `json:"what,omitempty"`  // what is not answered, or how they ended
	Since *time.Time `json:"since,omitempty"` // of the first of them
	Ranks string     `json:"ranks"`           // as ranges: "0-516,518-1023"
	Count int        `json:"count"`
}

// RankNode is a machine and the ranks on it.
type RankNode struct {
	Host  string `json:"host"`
	Ranks string `json:"ranks"` // as ranges
	// Local are the numbers that they have on the machine, in the same order; absent where
	// records do not say them.
	Local string `json:"local_ranks,omitempty"`
	// Rails are the interfaces over which they move their data, in the same order, or one for
	// all; absent where not all are known.
	Rails string `json:"rails,omitempty"`
}

// RankDetail is one rank.
type RankDetail struct {
	Rank  int      `json:"rank"`
	State string   `json:"state"`
	Host  string   `json:"host,omitempty"`
	Local *int     `json:"local_rank,omitempty"`
	CPU   *float64 `json:"cpu_cores,omitempty"` // how many of them its processes use, lately
	// Rail is the interface over which most of its data goes, or the address where its name is
	// not known. Sends is how much it sends there and elsewhere, in bytes a second, lately.
	Rail  string   `json:"rail,omitempty"`
	Sends *float64 `json:"sends_bytes_per_second,omitempty"`

	GPU     string     `json:"gpu,omitempty"`             // its address
	GPUBusy *float64   `json:"gpu_utilization,omitempty"` // from 0 to 1, lately
	PID     int64      `json:"pid,omitempty"`
	Process string     `json:"process,omitempty"`
	Began   *time.Time `json:"began,omitempty"`
	Updated time.Time  `json:"updated"`
	Ended   *time.Time `json:"ended,omitempty"`
	How     string     `json:"how,omitempty"` // it ended, where that is no success

	Waits []RankWait `json:"waits,omitempty"` // the oldest first
	// What its main thread does, as of the newest record of a stall.
	Thread   string     `json:"thread,omitempty"` // sleeping, disk_sleep, running, …
	Activity string     `json:"activity,omitempty"`
	Syscall  string     `json:"syscall,omitempty"`
	Channel  string     `json:"wait_channel,omitempty"` // function of the kernel
	File     string     `json:"file,omitempty"`
	Sent     *time.Time `json:"last_sent,omitempty"`
	Received *time.Time `json:"last_received,omitempty"`
	Stack    *RankStack `json:"stack,omitempty"`
	Steps    *Steps     `json:"steps,omitempty"` // the newest of them, where its code tells of them
}

// RankWait is one thing that a rank waits for.
type RankWait struct {
	For   string    `json:"for"` // "rank 3", "10.0.0.4:40003", "/ckpt"
	What  string    `json:"what"`
	Since time.Time `json:"since"`
}

// RankStack is where the main thread of a rank stood.
type RankStack struct {
	At       time.Time `json:"at"`
	Where    string    `json:"where,omitempty"` // innermost function that is of no library
	Waits    string    `json:"wait_class,omitempty"`
	Function string    `json:"kernel_function,omitempty"`
	Hash     string    `json:"hash,omitempty"` // equal for equal stacks
	Unread   string    `json:"unread,omitempty"`
	// Frames are innermost first, as they were last told for this hash; the first MaxFrames.
	Frames []RankFrame `json:"frames,omitempty"`
}

// RankFrame is one line of a stack.
type RankFrame struct {
	Kind     string `json:"kind"` // kernel, native, python
	Function string `json:"function"`
	Place    string `json:"place,omitempty"` // file and line, or library
}

// MaxFrames bounds the frames of a stack that are answered.
const MaxFrames = 64

// RankSource knows how ranks fare.
type RankSource interface {
	// States returns the jobs with nodes and groups, and a number that changes with them.
	// Nobody may change what is returned.
	States(now time.Time) (jobs []RankJob, version uint64)
	// State returns a rank of a job.
	State(job, domain string, rank int, now time.Time) (RankDetail, bool)
}

// RankListener is a Keeper that also answers how ranks fare.
type RankListener interface {
	// ListenRanks has GET /v1/ranks ask source, until cancel is called.
	ListenRanks(processor string, source RankSource) (cancel func())
}

// NamesOfSeveral are the names that jobs of several domains have, of names and domains of jobs.
func NamesOfSeveral(jobs iter.Seq2[string, string]) map[string]bool {
	first, several := map[string]string{}, map[string]bool{}
	for name, domain := range jobs {
		if known, met := first[name]; !met {
			first[name] = domain
		} else if domain != known {
			several[name] = true
		}
	}
	return several
}
