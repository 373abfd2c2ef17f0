package activity

import (
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Bounds of Demand.
const (
	maxDemands  = 256              // processes that are known at a time
	staleDemand = 30 * time.Second // a look before that tells of another time; the rarest looks are 10 s apart
	sameDemand  = time.Second / 4  // who asks within this gets the same answer: a thread may run for longer before it has to wait
)

// starving is the share of the time for which a thread has no CPU until that explains why what its
// process is to do does not come: with the half of a CPU it takes twice as long.
const starving = 0.5

// Demand tells of processes that serve others, as the daemon of a mount does, whether they have the
// CPUs that they want. It is not safe for concurrent use.
type Demand struct {
	fs    *procfs.FS
	clock func() time.Time
	looks map[uint32]*demand
}

// demand is one look at a process.
type demand struct {
	at      time.Time
	ticks   uint64 // start of the process
	threads map[uint32]*turns
	lacks   bool // as of that look
	known   bool // whether it lacks any
}

// NewDemand makes one for a proc file system.
func NewDemand(fs *procfs.FS) *Demand {
	return &Demand{fs: fs, clock: time.Now, looks: map[uint32]*demand{}}
}

// Starves reports whether a thread of the process could run for most of the time since the look before,
// and had no CPU. That it does little when it runs says nothing: who serves does little for each request.
// It is not known where there was no look before, and where a thread may wait since a moment between the two.
func (d *Demand) Starves(pid uint32) (lacks, known bool) {
	now := d.clock()
	for other, one := range d.looks {
		if now.Sub(one.at) > staleDemand || len(d.looks) > maxDemands {
			delete(d.looks, other)
		}
	}
	if known := d.looks[pid]; known != nil && now.Sub(known.at) < sameDemand {
		return known.lacks, known.known
	}
	next, err := lookAt(d.fs, pid, now, d.looks[pid])
	if err != nil {
		return false, false
	}
	d.looks[pid] = next
	return next.lacks, next.known
}

// remember takes the first look at a process, which somebody else has taken. What is known of it stays.
func (d *Demand) remember(pid uint32, first *demand) {
	if d.looks[pid] == nil && d.clock().Sub(first.at) <= staleDemand {
		d.looks[pid] = first
	}
}

// lookAt looks at a process, and compares it with the look before, nil if there was none.
func lookAt(fs *procfs.FS, pid uint32, now time.Time, before *demand) (*demand, error) {
	stat, err := fs.Stat(pid)
	if err != nil {
		return nil, err
	}
	next := &demand{at: now, ticks: stat.StartTicks, threads: map[uint32]*turns{}}
	if before == nil || before.ticks != stat.StartTicks {
		before = &demand{}
	}
	tids, _ := fs.Threads(pid, maxThreads) // none: it has just ended
	seconds, unsure := now.Sub(before.at).Seconds(), false
	for _, tid := range tids {
		then := before.threads[tid]
		t := turnOf(fs, pid, tid, then, false)
		if t == nil {
			continue
		}
		next.threads[tid] = t
		if then != nil {
			next.lacks = next.lacks || t.waited(then, seconds) >= starving
			unsure = unsure || t.mayWait(then, seconds)
		}
	}
	next.known = next.lacks || before.threads != nil && !unsure
	return next, nil
}
