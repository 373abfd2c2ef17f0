package activity

import (
	"slices"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Bounds of one refresh: a process that is not known yet costs a read.
const (
	maxMet     = 2048  // processes met in one refresh, the newest first
	maxParents = 65536 // known at a time
	checked    = 30    // refreshes until a process is read again: its parent may have ended
)

// family knows the parents of the processes of this host. What is known is kept, so
// that a look costs a list of numbers and a read of each new process.
type family struct {
	stale    bool
	rounds   int
	parent   map[uint32]relation
	children map[uint32][]uint32
}

// relation is who a process belongs to, as of some refresh.
type relation struct {
	parent uint32
	round  int
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
	f.parent, f.children = make(map[uint32]relation, len(pids)), map[uint32][]uint32{}
	met := 0
	for _, pid := range slices.Backward(pids) {
		known, is := before[pid]
		if old := !is || f.rounds-known.round >= checked; old && met < maxMet {
			met++
			stat, err := fs.Stat(pid)
			if err != nil {
				continue
			}
			known, is = relation{parent: stat.ParentPID, round: f.rounds}, true
		}
		if is && len(f.parent) < maxParents {
			f.parent[pid] = known
			f.children[known.parent] = append(f.children[known.parent], pid)
		}
	}
}

// forget has a process belong to nobody until it is read again: another has its number by now,
// or its parent has ended.
func (f *family) forget(pid uint32) {
	parent := f.parent[pid].parent
	delete(f.parent, pid)
	f.children[parent] = slices.DeleteFunc(f.children[parent], func(child uint32) bool { return child == pid })
}

// below are the descendants of a process in the order of their numbers, without those
// that are a root themselves and what is below these.
func (f *family) below(pid uint32, isRoot func(uint32) bool) []uint32 {
	seen := map[uint32]bool{pid: true}
	var all []uint32
	for open := []uint32{pid}; len(open) > 0; {
		next := f.children[open[0]]
		open = open[1:]
		for _, child := range next {
			if !seen[child] && !isRoot(child) {
				seen[child] = true
				all, open = append(all, child), append(open, child)
			}
		}
	}
	slices.Sort(all)
	return all
}
