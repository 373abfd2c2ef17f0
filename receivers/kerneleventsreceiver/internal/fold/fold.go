// Package fold makes one record of a storm: the same fault reported many times
// becomes one report with a count, a first and a last time. It has no clock; the
// caller passes the time in.
package fold

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/kernellog"
)

// Limits of a fold.
type Limits struct {
	Quiet   time.Duration // a fold closes after this long without its fault
	Longest time.Duration // and reports at least this often while it goes on
	Open    int           // folds open at once; beyond, one closes early
}

// Report is a fault with what is known of its repetitions.
type Report struct {
	*kernellog.Fault
	ID          string // the same for all reports of one storm
	Count       uint64 // since First
	First, Last time.Time
	Repeat      bool // an earlier report of this storm left already
}

// favor is how many times as many folds what is proven may have as what is claimed.
const favor = 3

// Folder holds the folds that are open. Beyond the limit it closes the oldest of the
// trust, then of the event, then of the thing that have most: lines that a process makes
// up without end close no fold of a driver's. It is not safe for concurrent use.
type Folder struct {
	limits      Limits
	open        map[kernellog.Key]*fairlru.Element[*storm]
	order       fairlru.List[*storm] // oldest first
	folded      uint64
	closedEarly uint64
}

// storm is one open fold.
type storm struct {
	fault       kernellog.Fault
	id          string
	count       uint64
	reported    uint64 // of count, what left already
	first, last time.Time
	seen        time.Time // when the caller last added to it
	window      time.Time // since when nothing left
	element     *fairlru.Element[*storm]
}

// New returns a folder without folds.
func New(limits Limits) *Folder {
	f := &Folder{limits: limits, open: make(map[kernellog.Key]*fairlru.Element[*storm])}
	f.order.Favor(string(record.Proven), favor)
	return f
}

// Continues reports whether fault would join an open fold.
func (f *Folder) Continues(fault *kernellog.Fault) bool {
	element, open := f.open[fault.Key]
	return open && element.Value.fault.State == fault.State
}

// Add takes in a fault at the moment now and appends what has to leave at once:
// the fault itself when it opens a fold and cannot wait, the fold that a change
// of state ends, and a fold that gives way when there are too many.
func (f *Folder) Add(reports []Report, fault kernellog.Fault, now time.Time) []Report {
	if f.Continues(&fault) {
		f.open[fault.Key].Value.repeat(fault.Time, now)
		f.folded++
		return reports
	}
	if element, open := f.open[fault.Key]; open {
		reports = f.close(reports, element)
	}
	if f.order.Len() >= f.limits.Open {
		victim, _ := f.order.Victim()
		reports = f.close(reports, victim)
		f.closedEarly++
	}
	s := newStorm(fault, now)
	s.element = f.order.Add(s, fairlru.Some, string(fault.Key.Trust), fault.Key.Event, fault.Key.Subject)
	f.open[fault.Key] = s.element
	if !fault.Waits() {
		reports = append(reports, s.report(now))
	}
	return reports
}

// Expire appends the closing reports of the folds that have gone quiet at the
// moment now, and interim reports of those that go on for too long.
func (f *Folder) Expire(reports []Report, now time.Time) []Report {
	f.order.Each(func(s *storm) {
		switch {
		case now.Sub(s.seen) >= f.limits.Quiet:
			reports = f.close(reports, s.element)
		case now.Sub(s.window) >= f.limits.Longest && s.count > s.reported:
			reports = append(reports, s.report(now))
		}
	})
	return reports
}

// Flush closes every fold and appends what they still had to report.
func (f *Folder) Flush(reports []Report) []Report {
	f.order.Each(func(s *storm) { reports = f.close(reports, s.element) })
	return reports
}

// Open is the number of open folds.
func (f *Folder) Open() int { return f.order.Len() }

// Folded is the number of faults that joined an open fold.
func (f *Folder) Folded() uint64 { return f.folded }

// ClosedEarly is the number of folds closed because there were too many.
func (f *Folder) ClosedEarly() uint64 { return f.closedEarly }

func (f *Folder) close(reports []Report, element *fairlru.Element[*storm]) []Report {
	s := element.Value
	f.order.Remove(element)
	delete(f.open, s.fault.Key)
	if s.count > s.reported {
		reports = append(reports, s.report(s.seen))
	}
	return reports
}

func newStorm(fault kernellog.Fault, now time.Time) *storm {
	return &storm{
		fault: fault, id: identify(&fault), count: 1,
		first: fault.Time, last: fault.Time, seen: now, window: now,
	}
}

// repeat counts one more; times may come out of order.
func (s *storm) repeat(at, now time.Time) {
	s.count++
	s.seen = now
	if at.After(s.last) {
		s.last = at
	}
	if at.Before(s.first) {
		s.first = at
	}
}

func (s *storm) report(now time.Time) Report {
	r := Report{Fault: &s.fault, ID: s.id, Count: s.count, First: s.first, Last: s.last, Repeat: s.reported > 0}
	s.reported, s.window = s.count, now
	return r
}

// identify gives a storm an id that the same lines at the same times get again.
func identify(fault *kernellog.Fault) string {
	hash := fnv.New128a()
	fmt.Fprintf(hash, "%#v %q", fault.Key, fault.State)
	_ = binary.Write(hash, binary.LittleEndian, fault.Time.UnixNano())
	return hex.EncodeToString(hash.Sum(nil))[:16]
}
