// Package storm folds equal faults in a row: the first leaves at once, the
// repetitions as one record with their number.
package storm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
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

// key is what two faults of one storm share: what the library says of it may have a
// number in it.
func (f Fault) key() Fault {
	f.Text = ""
	return f
}

// maxOpen bounds the storms that are open.
const maxOpen = 1024

// Storms are those that are not over. Beyond the limit the oldest gives way, of the GPU,
// then of the event, then of the process that have most: who makes faults without end
// ends no storm of another GPU.
type Storms struct {
	component string        // whose faults these are
	quiet     time.Duration // a storm is over after so long
	open      map[Fault]*fairlru.Element[*Storm]
	order     *fairlru.List[*Storm] // oldest first
	early     uint64
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
	return &Storms{component: component, quiet: quiet, open: map[Fault]*fairlru.Element[*Storm]{}, order: &fairlru.List[*Storm]{}}
}

// Add takes a fault and returns the storms that have to leave at once: the one that it
// begins, and the repetitions of one that gave way to it.
func (s *Storms) Add(one Fault, at time.Time) []*Storm {
	if known, ok := s.open[one.key()]; ok {
		known.Value.Count, known.Value.Last = known.Value.Count+1, at
		s.order.Touch(known, fairlru.Some)
		return nil
	}
	var tell []*Storm
	if s.order.Len() >= maxOpen {
		victim, _ := s.order.Victim()
		tell = s.end(tell, victim)
		s.early++
	}
	fresh := &Storm{Fault: one, ID: s.identify(one, at), Count: 1, First: at, Last: at}
	s.open[one.key()] = s.order.Add(fresh, fairlru.Some, one.PCI, one.Event, strconv.FormatUint(uint64(one.PID), 10))
	return append(tell, fresh)
}

// Expire returns the storms that have repetitions to tell, and forgets those
// that are over.
func (s *Storms) Expire(at time.Time) []*Storm {
	var tell []*Storm
	s.order.Each(func(o *Storm) {
		if at.Sub(o.Last) >= s.quiet {
			tell = s.end(tell, s.open[o.key()])
		} else if o.Count > o.Told {
			tell = append(tell, o)
		}
	})
	return tell
}

// Flush returns all that is left to tell.
func (s *Storms) Flush() []*Storm {
	var tell []*Storm
	s.order.Each(func(o *Storm) { tell = s.end(tell, s.open[o.key()]) })
	return tell
}

// ClosedEarly counts the storms that gave way to others.
func (s *Storms) ClosedEarly() uint64 { return s.early }

// end forgets a storm, and appends it if it has repetitions to tell.
func (s *Storms) end(tell []*Storm, element *fairlru.Element[*Storm]) []*Storm {
	o := element.Value
	s.order.Remove(element)
	delete(s.open, o.key())
	if o.Count > o.Told {
		tell = append(tell, o)
	}
	return tell
}

// identify gives a storm its id.
func (s *Storms) identify(one Fault, at time.Time) string {
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%s %#v", s.component, one)
	_ = binary.Write(hash, binary.LittleEndian, at.UnixNano())
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
