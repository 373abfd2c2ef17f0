package fusefaultreceiver

import (
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/fairlru"
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
	threads, met := map[uint32]bool{}, map[uint32]bool{}
	var firsts []*fusefault.InFlight // of each process
	for i := range entries {
		f := &entries[i]
		if threads[f.TID] || !waits(f) {
			continue
		}
		threads[f.TID] = true
		if !met[f.PID] {
			met[f.PID] = true
			firsts = append(firsts, f)
		}
	}
	w.threads = len(threads)
	for _, f := range look.chosen(firsts, now) {
		w.who[f.PID] = before.identify(f, now, look)
		w.pids = append(w.pids, f.PID)
	}
	if len(w.pids) > 0 {
		w.first, w.known = *firsts[slices.IndexFunc(firsts, func(f *fusefault.InFlight) bool { return f.PID == w.pids[0] })], true
	}
	w.name()
}

// chosen are the processes that are asked who they are: all, or those that wait longest of
// each domain, as many of each. A thousand processes of one user, which wait on a mount
// that all share, hide no rank of another.
func (l *look) chosen(firsts []*fusefault.InFlight, now time.Time) []*fusefault.InFlight {
	if len(firsts) <= maxProcesses || l.resolver == nil {
		return firsts[:min(len(firsts), maxProcesses)]
	}
	of := slices.Clone(firsts)
	slices.Reverse(of) // Trim keeps the last
	of = fairlru.Trim(of, maxProcesses, func(f *fusefault.InFlight) []string {
		p, _ := l.resolver.Lookup(f.PID, 0, now)
		return []string{p.Domain}
	})
	slices.Reverse(of)
	return of
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
		if p.IsRank() && p.JobID == w.named.JobID && p.Domain == w.named.Domain && p.Rendezvous == w.named.Rendezvous && !slices.Contains(w.ranks, p.Rank) && len(w.ranks) < maxListed {
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
