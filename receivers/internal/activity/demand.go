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
	known   bool // there was a look before
}

// NewDemand makes one for a proc file system.
func NewDemand(fs *procfs.FS) *Demand {
	return &Demand{fs: fs, clock: time.Now, looks: map[uint32]*demand{}}
}

// Starves reports whether a thread of the process could run for most of the time since the look before,
// and had no CPU. That it does little when it runs says nothing: who serves does little for each request.
// It is not known where there was no look before.
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
	stat, err := d.fs.Stat(pid)
	if err != nil {
		return false, false
	}
	next, before := &demand{at: now, ticks: stat.StartTicks, threads: map[uint32]*turns{}}, d.looks[pid]
	if before == nil || before.ticks != stat.StartTicks {
		before = &demand{}
	}
	tids, _ := d.fs.Threads(pid, maxThreads) // none: it has just ended
	seconds := now.Sub(before.at).Seconds()
	for _, tid := range tids {
		then := before.threads[tid]
		t := turnOf(d.fs, pid, tid, then, false)
		if t == nil {
			continue
		}
		next.threads[tid] = t
		next.lacks = next.lacks || then != nil && t.waited(then, seconds) >= starving
	}
	next.known = before.threads != nil
	d.looks[pid] = next
	return next.lacks, next.known
}
