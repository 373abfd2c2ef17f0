package ncclcall

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// Bounds on what is kept of the communicators that were seen being made. A communicator
// beyond them is not exact. Processes of the owner who has most give way.
const (
	maxBirthProcesses = 4096
	maxBirths         = 512  // of a process
	maxSplitNumber    = 1024 // of one communicator
)

// births are the communicators that the probe saw being made, by the hash that they
// have. Read adds to them and Scan asks, in two goroutines.
type births struct {
	mu        sync.Mutex
	processes map[uint32]*family
	since     map[uint32]time.Time // by slot of the library: what was made before is not known any more
	met       uint64               // processes, since Open
}

func newBirths() births {
	return births{processes: map[uint32]*family{}, since: map[uint32]time.Time{}}
}

// family is what one process made, and when it was first told to: nanoseconds of the boot
// clock.
type family struct {
	pid    uint32
	met    uint64    // the how manieth process it was
	owner  [2]string // tenant and user
	hashes map[uint64]birth
	splits map[split]birth // of communicators that were seen being made
	since  time.Time       // as that of a library
}

// birth is when, on the boot clock, and by a library in which slot.
type birth struct {
	at   uint64
	slot uint32
}

// split makes one communicator for each color.
type split struct {
	parent uint64
	color  int32
}

func (b *births) add(e *Event) {
	if len(e.born) == 0 && e.Kind != Split {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.processes[e.PID]
	if e.Time.Before(b.since[e.slot]) || f != nil && e.Time.Before(f.since) {
		return
	}
	f = b.family(e.PID, strconv.Itoa(int(e.tenant)), strconv.Itoa(int(e.user)))
	if len(f.hashes)+len(f.splits) >= maxBirths {
		return
	}
	for _, hash := range e.born {
		keepFirst(f.hashes, hash, birth{e.bootNS, e.slot})
	}
	if e.Kind == Split && e.Color >= 0 {
		keepFirst(f.splits, split{e.Hash, e.Color}, birth{e.bootNS, e.slot})
	}
}

// family finds or makes that of a process; mu is held.
func (b *births) family(pid uint32, tenant, user string) *family {
	if known := b.processes[pid]; known != nil {
		return known
	}
	if len(b.processes) >= maxBirthProcesses {
		b.trim()
	}
	b.met++
	f := &family{pid: pid, met: b.met, owner: [2]string{tenant, user}, hashes: map[uint64]birth{}, splits: map[split]birth{}}
	b.processes[pid] = f
	return f
}

// trim makes room for an eighth of the processes: those of the owner who has most, oldest
// first.
func (b *births) trim() {
	byAge := slices.SortedFunc(maps.Values(b.processes), func(x, y *family) int { return cmp.Compare(x.met, y.met) })
	stay := fairlru.Trim(byAge, maxBirthProcesses-maxBirthProcesses/8, func(f *family) []string { return f.owner[:] })
	clear(b.processes)
	for _, f := range stay {
		b.processes[f.pid] = f
	}
}

// keepFirst: what a process makes twice under one name is as old as the first.
func keepFirst[K comparable](births map[K]birth, key K, b birth) {
	if _, known := births[key]; !known {
		births[key] = b
	}
}

// seen reports whether a communicator was seen being made after a time of the boot clock. The
// child of a split counts only where its parent was seen: then so were all splits of that, and
// their children's hashes cannot be taken for one another.
func (b *births) seen(pid uint32, hash, after uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.processes[pid]
	if f == nil || hash == 0 {
		return false
	}
	if its, known := f.hashes[hash]; known {
		return its.at > after
	}
	for s, its := range f.splits {
		if _, known := f.hashes[s.parent]; known && s.makes(hash) {
			f.hashes[hash] = its
			return its.at > after
		}
	}
	return false
}

func (s split) makes(hash uint64) bool {
	for n := range int32(maxSplitNumber) {
		if splitHash(s.parent, n, s.color) == hash {
			return true
		}
	}
	return false
}

// clear forgets all that a library was seen to make until now, read or not.
func (b *births) clear(slot uint32, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since[slot] = now
	for pid, f := range b.processes {
		maps.DeleteFunc(f.hashes, func(_ uint64, its birth) bool { return its.slot == slot })
		maps.DeleteFunc(f.splits, func(_ split, its birth) bool { return its.slot == slot })
		if len(f.hashes)+len(f.splits) == 0 && f.since.IsZero() {
			delete(b.processes, pid)
		}
	}
}

// clearProcess forgets all that a process was seen to make until now, read or not.
func (b *births) clearProcess(pid uint32, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.family(pid, "", "")
	clear(f.hashes)
	clear(f.splits)
	f.since = now
}

// pids are the processes of which something is known.
func (b *births) pids() []uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]uint32, 0, len(b.processes))
	for pid := range b.processes {
		list = append(list, pid)
	}
	return list
}

// forget is called when a process has ended.
func (b *births) forget(pid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.processes, pid)
}
