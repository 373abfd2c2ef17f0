package gpu

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// The events. The first three are the kernel log's as well; the patterns make
// one verdict of all that tell the same.
const (
	EventXid       = "gpu.xid"
	EventLost      = "gpu.lost"
	EventRecovered = "gpu.recovered"
	EventECC       = "gpu.ecc"
	EventClock     = "gpu.clock_change"
	EventHealth    = "gpu.health"
	EventPolicy    = "gpu.policy_violation"
)

// Fault is one thing that happened to a GPU. Equal faults in a row are a storm.
type Fault struct {
	PCI                          string
	Event                        string
	XID                          uint64
	Kind                         string // of memory errors the type, of health the system, of a policy its condition
	Failed                       bool   // of health: a failure, not a warning
	GPUInstance, ComputeInstance int    // of MIG plus one, so that 0 is none
	PID                          uint32 // who it happened to, 0 when not known
	Text                         string // what the library says of it; the first of a storm counts
}

// same reports whether two faults are one storm: what the library says of it may
// have a number in it.
func (f Fault) same(other Fault) bool {
	f.Text, other.Text = "", ""
	return f == other
}

// maxStorms bounds the storms that are open.
const maxStorms = 1024

// Faults folds storms: the first fault leaves at once, the repetitions as one
// record with their number once a reading.
type Faults struct {
	source string        // whose faults these are
	quiet  time.Duration // a storm is over after so long
	open   []*Storm
}

// Storm is a fault with its repetitions.
type Storm struct {
	Fault
	ID          string
	Count, Told int
	First, Last time.Time
}

// NewFaults folds what source tells; a storm is over when it was quiet for an
// interval.
func NewFaults(source string, interval time.Duration) *Faults {
	return &Faults{source: source, quiet: interval}
}

// Add takes a fault and returns the storm if it has to leave at once.
func (f *Faults) Add(one Fault, at time.Time) (*Storm, bool) {
	for _, s := range f.open {
		if s.same(one) {
			s.Count, s.Last = s.Count+1, at
			return s, false
		}
	}
	s := &Storm{Fault: one, ID: f.identify(one, at), Count: 1, First: at, Last: at}
	if len(f.open) < maxStorms {
		f.open = append(f.open, s)
	}
	return s, true
}

// Expire returns the storms that have repetitions to tell, and forgets those
// that are over.
func (f *Faults) Expire(at time.Time) []*Storm {
	var tell []*Storm
	f.open = slices.DeleteFunc(f.open, func(s *Storm) bool {
		if s.Count > s.Told {
			tell = append(tell, s)
		}
		return at.Sub(s.Last) >= f.quiet
	})
	return tell
}

// flush returns all that is left to tell.
func (f *Faults) flush() []*Storm {
	tell := f.Expire(time.Time{})
	f.open = nil
	return tell
}

// identify gives a storm its id.
func (f *Faults) identify(one Fault, at time.Time) string {
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%s %#v", f.source, one)
	_ = binary.Write(hash, binary.LittleEndian, at.UnixNano())
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
