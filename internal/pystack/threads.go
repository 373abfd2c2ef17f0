package pystack

import "errors"

// listTries is how often a list of threads is read that changes meanwhile.
const listTries = 5

// threads lists the threads of all interpreters of the process, so many at most.
func (in *interpreter) threads(most int) (found []thread, cut bool, err error) {
	for range listTries {
		found, cut, err = in.threadsOnce(most)
		if err == nil || !movable(err) {
			return found, cut, err
		}
	}
	if len(found) > 0 {
		return found, true, nil // those before the break are real: each said whose it is
	}
	return nil, false, err
}

func (in *interpreter) threadsOnce(most int) (found []thread, cut bool, err error) {
	at, err := in.pointer(in.runtime + in.layout.runtimeInterpreters)
	if err != nil {
		return nil, false, err
	}
	if at == 0 {
		return nil, false, ErrNotRunning
	}
	seen := map[uint64]struct{}{}
	for range maxInterpreters {
		if at == 0 {
			return found, false, nil
		}
		if found, cut, err = in.threadsOf(at, most, found, seen); err != nil || cut {
			return found, cut, err
		}
		if at, err = in.pointer(at + in.layout.interpreterNext); err != nil {
			return found, false, err
		}
	}
	return found, true, nil
}

// threadsOf follows the list of one interpreter. Each member must say that it is its own.
func (in *interpreter) threadsOf(interpreter uint64, most int, found []thread, seen map[uint64]struct{}) ([]thread, bool, error) {
	at, err := in.pointer(interpreter + in.layout.interpreterThreads)
	for err == nil && at != 0 {
		if len(found) == most {
			return found, true, nil
		}
		if _, again := seen[at]; again {
			return found, false, errDamaged
		}
		seen[at] = struct{}{}
		var t thread
		if t, err = in.threadAt(at); err == nil && t.interpreter != interpreter {
			err = errMoving
		}
		if err == nil {
			found = append(found, t)
			at = t.next
		}
	}
	return found, false, err
}

// holders are the threads that hold a lock of an interpreter: each has one from 3.12 on,
// before that they share one.
func (in *interpreter) holders(threads []thread) (map[uint64]struct{}, error) {
	l := &in.layout
	held := map[uint64]struct{}{}
	if l.runtimeHolder != 0 {
		holder, err := in.pointer(in.runtime + l.runtimeHolder)
		held[holder] = struct{}{}
		return held, err
	}
	asked := uint64(0)
	for _, t := range threads {
		if l.interpreterLock == 0 || t.interpreter == asked {
			continue
		}
		asked = t.interpreter
		lock, err := in.pointer(asked + l.interpreterLock)
		if err != nil {
			return nil, err
		}
		state, err := in.pointer(lock + l.lockState)
		if err != nil {
			return nil, err
		}
		holder, err := in.pointer(lock + l.lockHolder)
		if err != nil {
			return nil, err
		}
		if uint32(state) == 1 { // locked: -1 before its first use, 0 free
			held[holder] = struct{}{}
		}
	}
	return held, nil
}

// numbered is a thread with its number in its own pid namespace, 0 when it is not known.
type numbered struct {
	thread
	number uint32
	holds  bool // a lock of an interpreter
}

// listed is the list of the threads at one moment.
type listed struct {
	threads   []numbered
	cut       bool
	lockKnown bool
}

func (l *listed) states() []thread {
	states := make([]thread, len(l.threads))
	for i := range l.threads {
		states[i] = l.threads[i].thread
	}
	return states
}

// list reads the threads, their numbers and who holds a lock.
func (in *interpreter) list(most int, arch string, is func(uint32) bool) (listed, error) {
	threads, cut, err := in.threads(most)
	if err != nil {
		return listed{}, err
	}
	held, err := in.holders(threads)
	if err != nil && !movable(err) {
		return listed{}, err
	}
	l := listed{cut: cut, lockKnown: err == nil && (in.layout.runtimeHolder != 0 || in.layout.interpreterLock != 0)}
	for _, t := range threads {
		_, holds := held[t.address]
		l.threads = append(l.threads, numbered{t, in.number(t, arch, is), holds})
	}
	return l, nil
}

// libc says where the C library keeps the number of a thread.
type libc int

const (
	unknownLibc libc = iota
	glibc
	musl
)

// numberOffset is where struct pthread has the tid: in glibc since 2.3.4 (nptl/descr.h),
// in musl from 1.1.20 on (src/internal/pthread_impl.h, amd64, where the structure begins
// at the thread pointer).
func (c libc) numberOffset(arch string) uint64 {
	switch {
	case c == glibc && arch == "amd64":
		return 720
	case c == glibc && arch == "arm64":
		return 208
	case c == musl && arch == "amd64":
		return 0x30
	}
	return 0
}

// number is what a thread is called in its own pid namespace, by the interpreter or, where
// that does not say it or is not right after a fork, by the C library. is reports whether
// there is such a thread.
func (in *interpreter) number(t thread, arch string, is func(uint32) bool) uint32 {
	if t.native != 0 && is(t.native) {
		return t.native
	}
	offset := in.libc.numberOffset(arch)
	if offset == 0 || t.posix == 0 {
		return 0
	}
	var b view = make([]byte, 4)
	if err := in.Read(t.posix+offset, b); err != nil || !is(b.u32(0)) {
		return 0
	}
	return b.u32(0)
}

// interpreter is that of a file in a memory where its addresses are so much higher.
func (m *image) interpreter(memory memory, bias uint64) (*interpreter, error) {
	head := make([]byte, tableSize)
	if err := memory.Read(m.runtime+bias, head); err != nil {
		return nil, err
	}
	l, err := m.layout(head)
	if err != nil {
		return nil, err
	}
	codeType := uint64(0)
	if m.codeType != 0 && m.typeType != 0 {
		codeType = m.codeType + bias
	}
	in := newInterpreter(memory, l, m.runtime+bias, codeType)
	if codeType != 0 {
		if err := in.check(m.typeType + bias); err != nil {
			return nil, err
		}
	}
	first, err := in.pointer(in.runtime + l.runtimeInterpreters)
	if err == nil && first == 0 {
		err = ErrNotRunning
	}
	return in, err
}

// check refuses an interpreter whose symbols do not fit its memory: its type of code is a
// type, and codes are as long as those of its version.
func (in *interpreter) check(typeType uint64) error {
	var b view = make([]byte, typeBasicSize+8)
	if err := in.Read(in.codeType, b); err != nil {
		return err
	}
	if b.u64(objectType) != typeType {
		return errMisplaced
	}
	if want := in.layout.codeSize; want != 0 && b.u64(typeBasicSize) != want {
		return &UnknownVersionError{"this build of " + versionName(in.layout.minor)}
	}
	return nil
}

// PyTypeObject, after the head and ob_size (Include/cpython/object.h).
const (
	typeName      = 24 // tp_name
	typeBasicSize = 32 // tp_basicsize
)

var errMisplaced = errors.New("its symbols are not where its file says")
