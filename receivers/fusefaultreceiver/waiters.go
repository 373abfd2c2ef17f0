package fusefaultreceiver

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
)

// Bounds on what one scan looks at for one mount, and on what a record lists.
const (
	maxProcesses = 256 // processes that are asked who they are
	maxListed    = 64  // pids and ranks in a record
)

// waiters are the threads that sleep until something stuck returns.
type waiters struct {
	threads int
	pids    []uint32 // distinct, the one that waits longest first
	ranks   []int    // of the job of named, sorted
	// named is who waits longest, a rank before any other process.
	named identity.Process
	known bool // somebody waits
	// first is the thread that waits longest.
	first fusefault.InFlight

	who map[uint32]identity.Process
}

// look is how the machine and the processes on it are looked at.
type look struct {
	machine  machine
	resolver identity.Resolver // nil without identity
}

// update finds who waits for entries, which are sorted oldest first.
func (w *waiters) update(now time.Time, entries []fusefault.InFlight, look *look) {
	before := *w
	*w = waiters{who: map[uint32]identity.Process{}}
	threads := map[uint32]bool{}
	for i := range entries {
		f := &entries[i]
		if threads[f.TID] || !waits(f) {
			continue
		}
		threads[f.TID] = true
		if _, there := w.who[f.PID]; !there && len(w.who) < maxProcesses {
			w.who[f.PID] = before.identify(f, now, look)
			w.pids = append(w.pids, f.PID)
		}
		if !w.known {
			w.first, w.known = *f, true
		}
	}
	w.threads = len(threads)
	w.name()
}

// waits reports whether the thread behind f sleeps until it returns. The probe
// moves what a thread began in the background and then sleeps for (a buffered read
// on its own readahead, fsync on writeback) to the foreground.
func waits(f *fusefault.InFlight) bool {
	return f.PID != 0 && (f.Kind == fusefault.KindFault || !f.Background)
}

// identify says who a process is, once for as long as it waits.
func (w *waiters) identify(f *fusefault.InFlight, now time.Time, look *look) identity.Process {
	if p, known := w.who[f.PID]; known {
		return p
	}
	if look.resolver != nil {
		if p, known := look.resolver.Lookup(f.PID, 0, now); known {
			p.PID = f.PID
			if p.Comm == "" {
				p.Comm = f.Comm
			}
			return p
		}
	}
	return identity.Process{PID: f.PID, Comm: f.Comm, Rank: identity.Unknown, LocalRank: identity.Unknown, WorldSize: identity.Unknown}
}

// name picks whom a record names, and the ranks of the same job.
func (w *waiters) name() {
	if !w.known {
		return
	}
	w.named = w.who[w.first.PID]
	for _, pid := range w.pids {
		if w.who[pid].IsRank() {
			w.named = w.who[pid]
			break
		}
	}
	for _, pid := range w.pids {
		p := w.who[pid]
		if p.IsRank() && p.JobID == w.named.JobID && !slices.Contains(w.ranks, p.Rank) && len(w.ranks) < maxListed {
			w.ranks = append(w.ranks, p.Rank)
		}
	}
	slices.Sort(w.ranks)
}

// ended reports whether all who waited are gone. Of many the first are asked.
func (w *waiters) ended(machine machine) bool {
	for _, pid := range w.pids[:min(len(w.pids), maxListed)] {
		if !machine.Ended(pid, pid) {
			return false
		}
	}
	return len(w.pids) > 0
}
