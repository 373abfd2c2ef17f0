//go:build linux

package uprobe

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// ErrNothing is what Libraries.Attach returns for a file that has nothing to attach to
// and need not have. It takes no room and is not tried again.
var ErrNothing = errors.New("it has none of the functions")

// Libraries are what a Watcher looks for.
type Libraries struct {
	// Names of the files, as procfs.FS.Libraries takes them.
	Names []string
	// Max is how many may be attached at a time. Owners share it: who has more than
	// another, who wants one, gives way.
	Max int
	// More: a process that has one of them may map another later, so it is looked at
	// again, ever more rarely.
	More bool
	// Keep is for how many rounds probes stay on a file that no process has mapped any more: what ends
	// soon after its start may be started again. Who wants room takes it from these first.
	Keep int
	// Attach puts probes on a file, which path names for the kernel. Closing what it
	// returns detaches them.
	Attach func(file *os.File, path string) (io.Closer, error)
	// Used tells which processes have mapped a library that is attached, after each look;
	// nil where nobody asks.
	Used func(library io.Closer, by []Process)
}

// Watcher attaches probes to the libraries that processes have mapped. Watch and Close
// may run side by side; Watch is for one goroutine.
type Watcher struct {
	libraries Libraries
	proc      *procfs.FS
	processes map[uint32]*looked // what Watch knows of processes
	round     int                // calls of Watch

	mu       sync.Mutex // guards what follows
	attached map[library]*attached
	closed   bool
}

// library is one file that processes have mapped. Containers have their own: the NVIDIA
// container toolkit mounts the host's driver into them (the same inode), an image may
// bring another.
type library struct {
	device string // major:minor, as maps shows it
	inode  uint64
}

// looked is what is known of one process.
type looked struct {
	process   Process
	libraries []library
	looks     int
	next      int // round of the next look
}

// attached is one library with its probes.
type attached struct {
	probes io.Closer // nil where attaching failed, or there is nothing to attach to
	empty  bool
	retry  int // where attaching failed, the round to try it again
	used   int // the last round in which a process had it mapped
}

// MaxPause is in rounds. A process without a library is looked at again in each of the first rounds, then ever
// more rarely: it loads the library when it first uses a GPU. A library that could not be
// attached is tried again after the longest pause.
const (
	eagerLooks = 12
	MaxPause   = 12
)

// NewWatcher makes a watcher over the processes of a /proc.
func NewWatcher(proc *procfs.FS, libraries Libraries) *Watcher {
	return &Watcher{libraries: libraries, proc: proc, processes: map[uint32]*looked{}, attached: map[library]*attached{}}
}

// Watch attaches to the libraries that these processes have mapped, each file once, and
// detaches from files that none of them has any more, Keep rounds later. A uprobe belongs to a file: other
// processes that map it are seen too, also those that begin to. Call it again now and
// then.
func (w *Watcher) Watch(processes []Process) (Watched, error) {
	var result Watched
	wanted, err := w.look(processes, &result)
	if err != nil {
		result.Err = err
	}
	if w.isClosed() {
		return result, probe.ErrClosed
	}
	users := w.users()
	for l, at := range wanted {
		if err := w.attachTo(l, at, users, &result); err != nil {
			result.Err = errors.Join(result.Err, err)
		}
	}
	return result, w.settle(users, &result)
}

// Close detaches the probes from every library. Closing twice is fine. A Watch under way
// detaches what it attaches.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	var errs []error
	for l, a := range w.attached {
		errs = append(errs, a.close())
		delete(w.attached, l)
	}
	return errors.Join(errs...)
}

func (w *Watcher) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

func (a *attached) close() error {
	if a.probes == nil {
		return nil
	}
	return a.probes.Close()
}

// found is where a library can be opened: in one of the processes that map it. The
// mapping is zero where all of them were looked at in an earlier round.
type found struct {
	pid uint32
	procfs.Mapping
}

// look brings what is known of the processes up to date and returns the libraries they
// use.
func (w *Watcher) look(processes []Process, result *Watched) (map[library]found, error) {
	w.round++
	wanted := map[library]found{}
	there := make(map[uint32]bool, len(processes))
	var errs error
	for _, process := range processes {
		there[process.PID] = true
		known := w.processes[process.PID]
		if known == nil || !known.process.Start.Equal(process.Start) {
			known = &looked{}
			w.processes[process.PID] = known
		}
		known.process = process
		if err := w.lookAt(process.PID, known, wanted); err != nil {
			result.Unreadable++
			errs = err // one says enough of many
		}
		for _, l := range known.libraries {
			if _, ok := wanted[l]; !ok {
				wanted[l] = found{}
			}
		}
	}
	for pid := range w.processes {
		if !there[pid] {
			delete(w.processes, pid)
		}
	}
	return wanted, errs
}

func (w *Watcher) lookAt(pid uint32, known *looked, wanted map[library]found) error {
	if len(known.libraries) > 0 && !w.libraries.More || w.round < known.next {
		return nil
	}
	mappings, err := w.proc.Libraries(pid, w.libraries.Names...)
	if err != nil && !errors.Is(err, procfs.ErrGone) {
		return err
	}
	known.looks++
	known.next = w.round + min(1+known.looks/eagerLooks, MaxPause)
	known.libraries = known.libraries[:0]
	for _, m := range mappings {
		l := library{device: m.Device, inode: m.Inode}
		known.libraries = append(known.libraries, l)
		wanted[l] = found{pid, m}
	}
	return nil
}

// attachTo attaches to a library that is not yet.
func (w *Watcher) attachTo(l library, at found, users map[library][]Process, result *Watched) error {
	known, full := w.state(l)
	if known == nil && full && at.Path != "" {
		freed, err := w.makeRoom(l, users)
		if err != nil {
			return err
		}
		full = !freed
	}
	switch {
	case known != nil && (known.probes != nil || known.empty || w.round < known.retry):
		return nil
	case at.Path == "":
		w.forget(l) // the next round finds where it can be opened
		return nil
	case known == nil && full:
		w.forget(l) // and when there is room
		result.Over++
		return nil
	}
	probes, err := w.open(at)
	a := &attached{probes: probes, empty: errors.Is(err, ErrNothing), retry: w.round + MaxPause, used: w.round}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errors.Join(err, a.close())
	}
	w.attached[l] = a
	if err != nil && !a.empty {
		return fmt.Errorf("watch %s of process %d: %w", at.Path, at.pid, err)
	}
	return nil
}

// state is what is known of a library, and whether there is no room for another.
func (w *Watcher) state(l library) (known *attached, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := 0
	for _, a := range w.attached {
		if !a.empty {
			held++
		}
	}
	return w.attached[l], held >= w.libraries.Max
}

// users are the processes that have each library, by number.
func (w *Watcher) users() map[library][]Process {
	users := map[library][]Process{}
	for _, pid := range slices.Sorted(maps.Keys(w.processes)) {
		known := w.processes[pid]
		for _, l := range known.libraries {
			if list := users[l]; len(list) == 0 || list[len(list)-1].PID != pid {
				users[l] = append(list, known.process)
			}
		}
	}
	return users
}

// makeRoom detaches from a library each of whose owners has more than an owner of the library
// that wants room would have. What somebody who has little uses too stays.
func (w *Watcher) makeRoom(l library, users map[library][]Process) (freed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := map[string]int{}
	for other, a := range w.attached {
		if !a.empty {
			for owner := range ownersOf(users[other]) {
				held[owner]++
			}
		}
	}
	least := func(l library) int {
		var each []int
		for owner := range ownersOf(users[l]) {
			each = append(each, held[owner])
		}
		if len(each) == 0 {
			return 0
		}
		return slices.Min(each)
	}
	var victim library
	most := least(l) + 1
	for other, a := range w.attached {
		if len(users[other]) == 0 {
			victim, freed = other, true
			break
		}
		if has := least(other); !a.empty && has > most {
			victim, most, freed = other, has, true
		}
	}
	if !freed {
		return false, nil
	}
	err = w.attached[victim].close()
	delete(w.attached, victim)
	return true, err
}

// ownersOf are those whose processes have a library.
func ownersOf(users []Process) map[string]bool {
	owners := map[string]bool{}
	for _, u := range users {
		owners[u.Owner] = true
	}
	return owners
}

// forget has the users of a library looked at again in the next round.
func (w *Watcher) forget(l library) {
	for _, known := range w.processes {
		for _, its := range known.libraries {
			if its == l {
				known.libraries, known.next = nil, 0
				break
			}
		}
	}
}

func (w *Watcher) open(at found) (io.Closer, error) {
	file, err := w.proc.OpenMapped(at.pid, at.Mapping)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	probes, err := w.libraries.Attach(file, Path(file))
	if err != nil {
		return nil, err
	}
	return probes, nil
}

// settle detaches what nobody uses and counts the rest.
func (w *Watcher) settle(users map[library][]Process, result *Watched) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return probe.ErrClosed
	}
	var errs []error
	for l, a := range w.attached {
		switch {
		case len(users[l]) > 0:
			a.used = w.round
		case a.probes == nil || w.round-a.used >= w.libraries.Keep:
			errs = append(errs, a.close())
			delete(w.attached, l)
			continue
		}
		switch {
		case a.empty:
		case a.probes == nil:
			result.Failed++
		default:
			result.Libraries++
			if w.libraries.Used != nil && len(users[l]) > 0 {
				w.libraries.Used(a.probes, users[l])
			}
		}
	}
	return errors.Join(errs...)
}
