//go:build linux && (amd64 || arm64)

package stacks

import (
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// backwardName begins the names of the threads in which PyTorch runs backward, one for each device
// (Engine::thread_init, torch/csrc/autograd/engine.cpp).
const backwardName = "pt_autograd_"

// maxBackward is how many of them are read: a process has one for each GPU that it sees.
const maxBackward = 32

// behind lets a main thread that waits for its threads of backward stand where the one that
// holds it up does: the innermost frames are that thread's, then come its own.
func (l *look) behind() {
	if main := l.main(); main == nil || main.Wait.Class != waitclass.Backward {
		return
	}
	others := len(l.Threads)
	l.options.OnlyMain = false
	l.take(l.backwards())
	main := l.main()
	if holds := holdsUp(l.Threads[others:]); holds != nil {
		main.through(holds)
	}
	tid := main.TID
	l.Threads = slices.DeleteFunc(l.Threads, func(t Thread) bool { return !t.Main && (!t.GIL || t.TID == tid) })
}

// backwards are the threads of backward.
func (l *look) backwards() (found []uint32) {
	tids, err := l.fs.Threads(l.PID, MaxThreads)
	if err != nil {
		l.lack("threads of backward", err)
	}
	for _, tid := range tids {
		if stat, err := l.fs.ThreadStat(l.PID, tid); err == nil && strings.HasPrefix(stat.Name, backwardName) && len(found) < maxBackward {
			found = append(found, tid)
		}
	}
	return found
}

// holdsUp is the thread of backward for which the others may wait, nil where none tells. One that
// waits for other ranks or for its GPU holds up none that does neither.
func holdsUp(threads []Thread) (found *Thread) {
	least := 0
	for i := range threads {
		if says := threads[i].says(); says > least {
			found, least = &threads[i], says
		}
	}
	return found
}

// says is how much the stack of a thread of backward tells, 0 for nothing: such a thread has nothing to do, or it computes.
func (t *Thread) says() int {
	switch {
	case t.State == 'D':
		return 4
	case t.Wait.Class == waitclass.Collective:
		return 2
	case t.Wait.Class == waitclass.GPU:
		return 1
	case len(t.Python) > 0: // a hook of the program, or a step that the program wrote
		return 3
	}
	return 0
}

// through makes a thread that waits for another stand where that does. Its place stays its own.
func (t *Thread) through(other *Thread) {
	t.TID, t.Name, t.State, t.GIL = other.TID, other.Name, other.State, other.GIL
	t.Python = slices.Concat(other.Python, t.Python)
	t.Native, t.Kernel, t.Wait = other.Native, other.Kernel, other.Wait
	t.Counter, t.Registers = other.Counter, other.Registers
	t.Errors = append(t.Errors, other.Errors...)
}
