package nvmlreceiver

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// The events of the receiver. The first three are the kernel log's as well; the
// patterns make one verdict of both.
const (
	eventXid       = "gpu.xid"
	eventLost      = "gpu.lost"
	eventRecovered = "gpu.recovered"
	eventECC       = "gpu.ecc"
	eventClock     = "gpu.clock_change"
)

// fault is one thing that happened to a GPU. Equal faults in a row are a storm.
type fault struct {
	pci                          string
	event                        string
	xid                          uint64
	errorType                    string // of memory
	gpuInstance, computeInstance int    // of MIG plus one, so that 0 is none
	pid                          uint32 // who it happened to, 0 when not known
}

// maxStorms bounds the storms that are open.
const maxStorms = 1024

// faults folds storms: the first fault leaves at once, the repetitions as one
// record with their number once a reading.
type faults struct {
	quiet time.Duration // a storm is over after so long
	open  []*storm
}

// storm is a fault with its repetitions.
type storm struct {
	fault
	id          string
	count, told int
	first, last time.Time
}

func newFaults(interval time.Duration) *faults { return &faults{quiet: interval} }

// add takes a fault and returns the storm if it has to leave at once.
func (f *faults) add(one fault, at time.Time) (*storm, bool) {
	for _, s := range f.open {
		if s.fault == one {
			s.count, s.last = s.count+1, at
			return s, false
		}
	}
	s := &storm{fault: one, id: identify(one, at), count: 1, told: 0, first: at, last: at}
	if len(f.open) < maxStorms {
		f.open = append(f.open, s)
	}
	return s, true
}

// expire returns the storms that have repetitions to tell, and forgets those
// that are over.
func (f *faults) expire(at time.Time) []*storm {
	var tell []*storm
	f.open = slices.DeleteFunc(f.open, func(s *storm) bool {
		if s.count > s.told {
			tell = append(tell, s)
		}
		return at.Sub(s.last) >= f.quiet
	})
	return tell
}

// flush returns all that is left to tell.
func (f *faults) flush() []*storm {
	tell := f.expire(time.Time{})
	f.open = nil
	return tell
}

// identify gives a storm its id.
func identify(f fault, at time.Time) string {
	hash := fnv.New128a()
	fmt.Fprintf(hash, "nvml %#v", f)
	_ = binary.Write(hash, binary.LittleEndian, at.UnixNano())
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
