// Package storm folds equal faults in a row: the first leaves at once, the
// repetitions as one record with their number.
package storm

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
	Xid       = "gpu.xid"
	Lost      = "gpu.lost"
	Recovered = "gpu.recovered"
	ECC       = "gpu.ecc"
	Clock     = "gpu.clock_change"
	Health    = "gpu.health"
	Policy    = "gpu.policy_violation"
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

// maxOpen bounds the storms that are open.
const maxOpen = 1024

// Storms are those that are not over.
type Storms struct {
	component string        // whose faults these are
	quiet     time.Duration // a storm is over after so long
	open      []*Storm
}

// Storm is a fault with its repetitions.
type Storm struct {
	Fault
	ID          string
	Count, Told int
	First, Last time.Time
}

// New folds the faults of a component; a storm is over when it was quiet for so long.
func New(component string, quiet time.Duration) *Storms {
	return &Storms{component: component, quiet: quiet}
}

// Add takes a fault and returns the storm if it has to leave at once.
func (s *Storms) Add(one Fault, at time.Time) (*Storm, bool) {
	for _, o := range s.open {
		if o.same(one) {
			o.Count, o.Last = o.Count+1, at
			return o, false
		}
	}
	fresh := &Storm{Fault: one, ID: s.identify(one, at), Count: 1, First: at, Last: at}
	if len(s.open) < maxOpen {
		s.open = append(s.open, fresh)
	}
	return fresh, true
}

// Expire returns the storms that have repetitions to tell, and forgets those
// that are over.
func (s *Storms) Expire(at time.Time) []*Storm {
	var tell []*Storm
	s.open = slices.DeleteFunc(s.open, func(o *Storm) bool {
		if o.Count > o.Told {
			tell = append(tell, o)
		}
		return at.Sub(o.Last) >= s.quiet
	})
	return tell
}

// Flush returns all that is left to tell.
func (s *Storms) Flush() []*Storm {
	tell := s.Expire(time.Time{})
	s.open = nil
	return tell
}

// identify gives a storm its id.
func (s *Storms) identify(one Fault, at time.Time) string {
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%s %#v", s.component, one)
	_ = binary.Write(hash, binary.LittleEndian, at.UnixNano())
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
