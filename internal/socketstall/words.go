// Package socketstall is the record nccl.socket.stall: its words, how it is read,
// and the book of the stalls that stand. Who writes such records and who reads
// them both use it, so they cannot disagree. It does no I/O and has no clock.
package socketstall

import (
	"slices"
	"time"
)

// The events: a stall that began or lasts, and the end of one.
const (
	Event    = "nccl.socket.stall"
	EventEnd = "nccl.socket.stall.end"
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

// The states, as /proc/<pid>/stat tells them.
const (
	Running   State = "running"
	Sleeping  State = "sleeping"
	DiskSleep State = "disk_sleep"
	Stopped   State = "stopped"
	Zombie    State = "zombie"
)

var states = []State{Running, Sleeping, DiskSleep, Stopped, Zombie}

// Halted reports whether a thread in this state cannot go on by itself.
func (s State) Halted() bool { return s == Stopped || s == Zombie }

// EndReason says how a stall ended.
type EndReason string

// The reasons.
const (
	Progress EndReason = "progress" // bytes moved
	Closed   EndReason = "closed"   // the socket is gone
	Exited   EndReason = "exited"   // the process is gone
)

var endReasons = []EndReason{Progress, Closed, Exited}
