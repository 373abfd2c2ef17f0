package pystack

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/procmem"
)

// Open finds the interpreter of a process. A process that runs no Python is ErrNoPython.
func (r *Reader) Open(pid uint32) (*Process, error) {
	found, c, err := r.interpreters(pid)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, ErrNoPython
	}
	memory, err := procmem.Open(r.proc, pid)
	if err != nil {
		return nil, r.absent(pid, err)
	}
	p := &Process{proc: r.proc, pid: pid, tids: &tids{proc: r.proc, pid: pid}, end: memory.Close}
	var problem error = ErrNoPython
	for _, one := range found {
		if p.in, err = one.begin(memory, c); err == nil {
			return p, nil
		}
		// The inode may be another file's by now: it is read anew the next time.
		r.forget(one.mapping)
		problem = err
	}
	return nil, errors.Join(problem, p.Close())
}

// absent tells a process that is gone from a kernel that has no pagemap.
func (r *Reader) absent(pid uint32, err error) error {
	if errors.Is(err, procfs.ErrGone) && r.proc.Process(pid).State != procfs.Gone {
		return errors.New("the kernel has no /proc/PID/pagemap: it needs CONFIG_PROC_PAGE_MONITOR")
	}
	return err
}

// candidate is a file that has an interpreter and is mapped.
type candidate struct {
	mapping procfs.Mapping
	image   *image
}

// interpreters finds the files with an interpreter that a process has mapped, its program
// first, whose symbols come before those of libraries. libc is the one it has beside them.
func (r *Reader) interpreters(pid uint32) (found []candidate, c libc, err error) {
	program, err := r.proc.Program(pid)
	if errors.Is(err, procfs.ErrGone) && r.proc.Process(pid).State != procfs.Gone {
		return nil, c, nil // a thread of the kernel has no program
	}
	if err != nil {
		return nil, c, err
	}
	mapped, err := r.proc.Code(pid, func(m procfs.Mapping) bool {
		return m.Path == program || named(m.Path, "python", "libpython") || libcOf(m.Path) != unknownLibc
	})
	if err != nil {
		return nil, c, err
	}
	var problem error
	for _, m := range mapped {
		if of := libcOf(m.Path); of != unknownLibc {
			c = of
			continue
		}
		one, err := r.image(pid, m)
		switch {
		case err != nil:
			problem = err
		case one.runtime == 0 && one.codeType != 0:
			problem = &UnknownVersionError{"CPython 3.6 or older"}
		case one.runtime == 0:
		case m.Path == program:
			found = append([]candidate{{m, one}}, found...)
		default:
			found = append(found, candidate{m, one})
		}
	}
	if len(found) == 0 && problem != nil {
		return nil, c, problem
	}
	return found, c, nil
}

func named(file string, names ...string) bool {
	for _, name := range names {
		if strings.HasPrefix(path.Base(file), name) {
			return true
		}
	}
	return false
}

func libcOf(file string) libc {
	switch {
	case named(file, "ld-musl-"):
		return musl
	case named(file, "libc.so.6", "libc-2."):
		return glibc
	}
	return unknownLibc
}

// image reads the file of a mapping, once if an interpreter is in it. What is in none may
// be in the next file with that inode.
func (r *Reader) image(pid uint32, m procfs.Mapping) (*image, error) {
	id := fileID{m.Device, m.Inode}
	r.mu.Lock()
	known := r.images.get(id)
	r.mu.Unlock()
	if known != nil {
		return known, nil
	}
	file, err := r.proc.OpenMapped(pid, m)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.proc.Close(file) }()
	name := fmt.Sprintf("%s (device %s, inode %d)", m.Path, m.Device, m.Inode)
	one, err := procfs.PatientlyOf(r.proc, pid, name, func() (*image, error) {
		return readImage(file)
	})
	if err != nil || one.runtime == 0 {
		return one, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images.put(id, one)
	return one, nil
}

func (r *Reader) forget(m procfs.Mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images.forget(fileID{m.Device, m.Inode})
}

// begin makes an interpreter of a file and the memory of a process that has mapped it.
func (one candidate) begin(m memory, c libc) (*interpreter, error) {
	bias, err := one.image.bias(one.mapping.Start, one.mapping.Offset)
	if err != nil {
		return nil, err
	}
	in, err := one.image.interpreter(m, bias)
	if err != nil {
		return nil, err
	}
	in.libc = c
	in.layout.runtimeHolder = in.layout.holderOn(runtime.GOARCH, c)
	return in, nil
}

// Stacks reads the threads of the process. Its error is why there are none, or not all of
// them; a thread that was given up is none.
func (p *Process) Stacks(o Options) (Stacks, error) {
	if p.end == nil {
		return Stacks{}, procfs.ErrGone
	}
	o = o.bounded()
	p.in.texts = maxTexts
	if err := p.tids.refresh(o.OnlyMain && !o.Holders); err != nil {
		return Stacks{}, err
	}
	list, err := p.in.list(mostThreads, runtime.GOARCH, p.tids.is)
	if err != nil {
		return Stacks{}, err
	}
	s := Stacks{Cut: list.cut, GILKnown: list.lockKnown}
	var states []uint64
	for _, t := range p.mainFirst(list.threads) {
		if o.OnlyMain && !p.tids.isMain(t.number) && !(o.Holders && t.holds) {
			continue
		}
		if len(s.Threads) == o.Threads {
			s.Cut = true
			break
		}
		one, err := p.thread(t, o.Frames)
		if err != nil {
			return s, err
		}
		one.GIL = t.holds
		s.Threads, states = append(s.Threads, one), append(states, t.address)
	}
	return s, p.recheckLocks(s.Threads, states, list)
}

// mainFirst begins with the main thread. The interpreter has it last.
func (p *Process) mainFirst(threads []numbered) []numbered {
	return slices.SortedStableFunc(slices.Values(threads), func(a, b numbered) int {
		switch main := p.tids.isMain(a.number); {
		case main == p.tids.isMain(b.number):
			return 0
		case main:
			return -1
		}
		return 1
	})
}

// recheckLocks leaves the lock to those that hold it still.
func (p *Process) recheckLocks(threads []Thread, states []uint64, before listed) error {
	held, err := p.in.holders(before.states())
	if movable(err) {
		held, err = nil, nil // then nobody is said to hold it
	}
	for i := range threads {
		_, still := held[states[i]]
		threads[i].GIL = threads[i].GIL && still
	}
	return err
}

// tries is how often a thread that moves is looked at before it is given up.
const tries = 20

// thread reads one thread. Its error ends the look at the process.
func (p *Process) thread(of numbered, frames int) (Thread, error) {
	t := Thread{TID: p.tids.outer(of.number), Main: p.tids.isMain(of.number)}
	before, _ := p.status(t.TID)
	for range tries {
		still := before.Asleep()
		s, err := p.in.look(of.thread, frames, !still)
		if err != nil && !movable(err) {
			return t, err
		}
		after, known := p.status(t.TID)
		held := still && known && after == before
		if err == nil && (held || s.agreed) {
			t.Frames, t.Place, t.Cut, t.Torn, t.Err = s.frames, s.place, s.cut, false, nil
			return t, nil
		}
		t.Torn, t.Err = true, errMoving
		if held { // it did not move: trying again finds the same
			t.Err = err
			return t, nil
		}
		if errors.Is(err, procmem.ErrAbsent) {
			t.Err = err
		}
		before = after
	}
	return t, nil
}

// status is the state of a thread; that of one whose number is not known is none.
func (p *Process) status(tid uint32) (procfs.ThreadStatus, bool) {
	if tid == 0 {
		return procfs.ThreadStatus{}, false
	}
	s, err := p.proc.ThreadStatus(p.pid, tid)
	if err != nil {
		return procfs.ThreadStatus{}, false
	}
	return s, true
}

// maxSeen bounds the threads that PlaceOf remembers of a process: it is asked for one or two.
const maxSeen = 8

// PlaceOf is where a thread stands, by its number in /proc. It costs a few reads.
func (p *Process) PlaceOf(tid uint32) (Place, error) {
	if p.end == nil {
		return Place{}, procfs.ErrGone
	}
	if seen := p.seen[tid]; seen != nil { // whether it is still the same is seen as it is read
		if place, err := p.in.place(*seen); err == nil {
			return place, nil
		}
		delete(p.seen, tid)
	}
	if err := p.tids.refresh(tid == p.pid); err != nil {
		return Place{}, err
	}
	list, err := p.in.list(mostThreads, runtime.GOARCH, p.tids.is)
	if err != nil {
		return Place{}, err
	}
	for i := range list.threads {
		if t := &list.threads[i]; p.tids.outer(t.number) == tid {
			if p.seen == nil || len(p.seen) >= maxSeen {
				p.seen = map[uint32]*thread{}
			}
			p.seen[tid] = &t.thread
			return p.in.place(t.thread)
		}
	}
	return Place{}, ErrNotRunning
}
