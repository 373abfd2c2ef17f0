// Package socketstall is the record nccl.socket.stall: its words, how it is read,
// and the book of the stalls that stand. Who writes such records and who reads
// them both use it, so they cannot disagree. It does no I/O and has no clock.
package socketstall

import (
	"slices"
	"time"
)

// The events: a stall that began or lasts, the end of one, and that sockets of a job move which
// would be told if they stalled.
const (
	Event        = "nccl.socket.stall"
	EventEnd     = "nccl.socket.stall.end"
	EventWatched = "nccl.socket.watched"
)

// That sockets are watched is said again while they move. Who was not told so for Unwatched need
// not wait for what they say: one repetition is lost, and some delay.
const (
	WatchedAgain = 5 * time.Minute
	Unwatched    = 2*WatchedAgain + time.Minute
)

// A stall that lasts is repeated. One that was not repeated for Fading counts no
// more: three repetitions are lost, and some delay.
const (
	Repeat = 10 * time.Second
	Fading = 3*Repeat + 5*time.Second
)

// Cause says why a socket does not move.
type Cause string

// The causes. All but Waiting accuse somebody.
const (
	NotReading     Cause = "not_reading"      // the process does not read what arrived
	PeerNotReading Cause = "peer_not_reading" // its peer does not read what it sends
	Network        Cause = "network"          // packets to its peer are not acknowledged
	Connecting     Cause = "connecting"       // a connection does not come about
	Waiting        Cause = "waiting"          // all queues are empty
)

// causes go from those that accuse to those that do not.
var causes = []Cause{NotReading, PeerNotReading, Network, Connecting, Waiting}

// gentler reports whether c accuses less than o: of two that were told at once it
// is the one that counts.
func (c Cause) gentler(o Cause) bool { return slices.Index(causes, c) > slices.Index(causes, o) }

// Direction of the data that does not move, seen from the rank.
type Direction string

// The directions.
const (
	Send    Direction = "send"
	Receive Direction = "receive"
)

var directions = []Direction{Send, Receive}

// Kind is what a socket is for.
type Kind string

// The kinds.
const (
	Data      Kind = "data"
	Bootstrap Kind = "bootstrap"
	Proxy     Kind = "proxy"
	RAS       Kind = "ras"
	Store     Kind = "store"
	Gloo      Kind = "gloo"
	Other     Kind = "other"
)

var kinds = []Kind{Data, Bootstrap, Proxy, RAS, Store, Gloo, Other}

// Collective reports whether the data of collectives goes this way.
func (k Kind) Collective() bool { return k == Data || k == Gloo }

// Service reports whether a thread of its own answers such a socket at once, in
// whatever phase the job is.
func (k Kind) Service() bool { return k == RAS || k == Store }

// Joining reports whether a rank uses such a socket before it has joined its job.
func (k Kind) Joining() bool { return k == Store || k == Bootstrap }

// State is what the main thread of a process does, "" when not known.
type State string

// The states, as /proc/<pid>/stat tells them, and the freezer of its cgroup.
const (
	Running   State = "running"
	Sleeping  State = "sleeping"
	DiskSleep State = "disk_sleep"
	Stopped   State = "stopped"
	Frozen    State = "frozen" // its cgroup is
	Zombie    State = "zombie"
)

var states = []State{Running, Sleeping, DiskSleep, Stopped, Frozen, Zombie}

// Halted reports whether a thread in this state cannot go on by itself.
func (s State) Halted() bool { return s == Stopped || s == Frozen || s == Zombie }

// Activity is what the process tree of a rank did when it last did anything, "" when not
// known.
type Activity string

// The activities. All but Idle are progress.
const (
	Computing       Activity = "computing"        // its main thread uses a CPU
	ThreadComputing Activity = "thread_computing" // another thread of it does
	ChildComputing  Activity = "child_computing"  // a process that it started does
	IO              Activity = "io"               // what it reads and writes is answered
	Starved         Activity = "starved"          // something of it could run and has no CPU, or what serves its file could
	Idle            Activity = "idle"             // nothing of it does anything
)

var activities = []Activity{Computing, ThreadComputing, ChildComputing, IO, Starved, Idle}

// Silence is how long a rank has been silent, measured by what it does and by what its
// job is used to. The receiver decides it, and who reads it believes it.
type Silence string

// The silences, "" when not known.
const (
	Usual   Silence = "usual"   // it may be a pause like others
	Long    Silence = "long"    // it makes progress, and the others wait for long
	Overdue Silence = "overdue" // a fault
)

var silences = []Silence{Usual, Long, Overdue}

// EndReason says how a stall ended.
type EndReason string

// The reasons.
const (
	Progress EndReason = "progress" // bytes moved
	Closed   EndReason = "closed"   // the socket is gone
	Exited   EndReason = "exited"   // the process is gone
)

// LeftEnd says why it is over that a process left its job, "" while it is not.
type LeftEnd string

// The reasons.
const (
	LeftJoined LeftEnd = "joined"  // it has connections again
	LeftGoesOn LeftEnd = "goes_on" // data of its job has moved since
)

// LostHow says how a rank lost a connection.
type LostHow string

// The ways.
const (
	LostClosed LostHow = "closed" // its far end closed it
	LostReset  LostHow = "reset"  // the far end, or what is between, reset it
	LostFailed LostHow = "failed" // nobody answered, or somebody killed it
)

// CutEnd says what became of a process that closed a connection first.
type CutEnd string

// What there is.
const (
	CutEnded CutEnd = "ended" // with status 0
	CutLives CutEnd = "lives" // or others ended it later
)

var endReasons = []EndReason{Progress, Closed, Exited}
