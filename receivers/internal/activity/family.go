package activity

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Bounds of one refresh: a process that is not known yet costs a read. Users share both.
const (
	maxMet     = 2048  // processes read in one refresh
	maxParents = 65536 // known at a time
	checked    = 30    // refreshes until a process is read again: its parent may have ended
)

// family knows the parents of the processes of this host. What is known is kept, so
// that a look costs a list of numbers and a read of each new process.
type family struct {
	met, known int // maxMet, maxParents

	stale    bool
	rounds   int
	parent   map[uint32]relation
	children map[uint32][]uint32
	waits    map[uint32]int // since which refresh those wait that there was no time for
}

// relation is who a process belongs to, as of some refresh.
type relation struct {
	parent, user uint32
	round        int
	met          int // refresh in which it was met
}

// refresh brings the family up to date, once in a round.
func (f *family) refresh(fs *procfs.FS) {
	if !f.stale {
		return
	}
	f.stale = false
	f.rounds++
	pids, err := fs.PIDs()
	if err != nil {
		return
	}
	before := f.parent
	f.parent = make(map[uint32]relation, min(len(pids), f.known))
	var due, met, stay []uint32
	for _, pid := range pids {
		known, is := before[pid]
		if is {
			f.parent[pid] = known
			stay = append(stay, pid)
		}
		if !is || f.rounds-known.round >= checked {
			due = append(due, pid)
		}
	}
	for _, pid := range f.turn(due, fs) {
		stat, err := fs.Stat(pid)
		if err != nil {
			delete(f.parent, pid)
			continue
		}
		known, is := f.parent[pid]
		if !is {
			met, known.met = append(met, pid), f.rounds
		}
		f.parent[pid] = relation{parent: stat.ParentPID, user: fs.Owner(pid), round: f.rounds, met: known.met}
	}
	f.hold(append(met, stay...))
}

// turn chooses who of those that are due is read now. Users share the room: who starts
// processes without end delays the look at his own. Of one user those that wait longest are
// read first: what begins and ends again and again is behind them.
func (f *family) turn(due []uint32, fs *procfs.FS) (chosen []uint32) {
	waited := f.waits
	f.waits = map[uint32]int{}
	if len(due) <= f.met {
		return due
	}
	of := map[uint32][]uint32{}
	for _, pid := range due {
		known, is := f.parent[pid]
		if !is {
			known.user = fs.Owner(pid)
		}
		of[known.user] = append(of[known.user], pid)
		f.waits[pid] = cmp.Or(waited[pid], f.rounds)
	}
	if len(of) > f.met { // one may have thousands of numbers of users: all take turns
		of = map[uint32][]uint32{0: due}
	}
	users := slices.SortedFunc(maps.Keys(of), func(a, b uint32) int {
		return cmp.Or(cmp.Compare(len(of[a]), len(of[b])), cmp.Compare(a, b))
	})
	room := f.met
	for i, user := range users {
		all := of[user]
		n := min(len(all), room/(len(users)-i))
		room -= n
		slices.SortStableFunc(all, func(a, b uint32) int { return cmp.Compare(f.waits[a], f.waits[b]) })
		chosen = append(chosen, all[:n]...)
	}
	for _, pid := range chosen {
		delete(f.waits, pid)
	}
	return chosen
}

// hold keeps as many as there is room for, shared between users; those that stand last stay.
func (f *family) hold(pids []uint32) {
	all := len(pids)
	pids = fairlru.Trim(pids, f.known, func(pid uint32) []string { return []string{strconv.FormatUint(uint64(f.parent[pid].user), 10)} })
	if len(pids) < all {
		kept := make(map[uint32]relation, len(pids))
		for _, pid := range pids {
			kept[pid] = f.parent[pid]
		}
		f.parent = kept
	}
	f.children = make(map[uint32][]uint32, len(pids))
	for _, pid := range pids {
		if known, is := f.parent[pid]; is {
			f.children[known.parent] = append(f.children[known.parent], pid)
		}
	}
}

// isNew reports whether a process was met in this refresh.
func (f *family) isNew(pid uint32) bool { return f.parent[pid].met == f.rounds }

// forget has a process belong to nobody until it is read again: another has its number by now,
// or its parent has ended.
func (f *family) forget(pid uint32) {
	parent := f.parent[pid].parent
	delete(f.parent, pid)
	f.children[parent] = slices.DeleteFunc(f.children[parent], func(child uint32) bool { return child == pid })
}

// below are the descendants of a process in the order of their numbers, with kin, which left it,
// and without those that are a root themselves and what is below these.
func (f *family) below(pid uint32, isRoot func(uint32) bool, kin []uint32) []uint32 {
	seen := map[uint32]bool{pid: true}
	var all []uint32
	add := func(children []uint32) {
		for _, child := range children {
			if !seen[child] && !isRoot(child) {
				seen[child] = true
				all = append(all, child)
			}
		}
	}
	add(f.children[pid])
	for _, one := range kin {
		if _, lives := f.parent[one]; lives {
			add([]uint32{one})
		}
	}
	for i := 0; i < len(all); i++ {
		add(f.children[all[i]])
	}
	slices.Sort(all)
	return all
}
