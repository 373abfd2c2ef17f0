package stacksreceiver

import (
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/pystack"
	"github.com/tracecoreai/tracecore/internal/stacks"
	"github.com/tracecoreai/tracecore/internal/unwind"
	"github.com/tracecoreai/tracecore/internal/waitclass"
)

// A main thread that never sleeps and stays in one call of Python may compute, or wait for
// something in a loop. A thread that waits so goes round in a line or two of Python that take no
// memory, read nothing and write nothing, and ask the clock or look at a flag: nothing else of
// the interpreter is seen. A thread that computes for that long is in compiled code of a library (a
// tensor, an array, a tokenizer), in the interpreter's own functions (words, lists, sorting),
// in other lines, or takes memory.
const (
	spinDoubt   = 10 * time.Second // in one call, until its compiled code is looked at
	spinTime    = 30 * time.Second // in one call, at least
	spinAgain   = 2 * spinTime     // until it is told for another reason, where the receiver before this one has told that it spins
	spinSamples = 16               // looks that all found it in the interpreter alone
	spinAsks    = 2                // of them that found it ask the clock, or the kernel for a state
	spinFlag    = 4                // instructions of a loop that looks at a flag,
	spinOwn     = 0.7              // whose looks are in the interpreter's own loop: so much of them
	spinLines   = 1                // from the first line seen to the last
	spinPlaces  = 10               // instructions at which it was seen: with a call of the clock and a comparison there is no room for work
	spinFaults  = 20               // pages a second that its process takes
	spinBytes   = 64 << 10         // that its process reads and writes a second
	spinCode    = 64               // bytes of instructions of a loop in compiled code
	spinOthers  = 0.5              // of its own time on a CPU that others of its processes may have

	sampleEach  = time.Second
	sampleAgain = 5 * time.Second // once it is told
	maxSamples  = 4               // in one look, of all ranks
)

// usage is what a process has taken since it began.
type usage struct {
	faults, bytes uint64
	cpu           time.Duration
	main, others  time.Duration // its main thread; other threads, and children
}

// spin is what is known of a main thread that runs in one call.
type spin struct {
	calls  uint64 // the call
	began  time.Time
	sleeps uint64
	places map[uint64]struct{}

	sampled time.Time
	first   usage
	firstAt time.Time

	counter, registers uint64        // of the first look at its compiled code
	still              bool          // they are the same since
	ran                time.Duration // on its CPU, at the last look
	library            bool          // its compiled code is of a library, in one look at least

	samples, loops, asks int  // looks at its compiled code; in the interpreter's own loop; at the clock
	low, high            int  // lines
	work                 bool // it is some, until it is in another call
	waits                bool // for others or its GPU, by its compiled code: it polls
	told                 bool
}

// look takes where the thread is now, and says whether its compiled code is to be looked at.
func (s *spin) look(now time.Time, status procfs.ThreadStatus, place pystack.Place) bool {
	switch {
	case status.State != 'R' || status.Sleeps != s.sleeps || s.places == nil || place != nowhere && place.Calls != s.calls:
		*s = spin{calls: place.Calls, began: now, sleeps: status.Sleeps, places: map[uint64]struct{}{}}
		return false
	case place == nowhere: // it moved while it was read
		return false
	}
	if s.places[place.Chain] = struct{}{}; len(s.places) > spinPlaces {
		s.work = true
	}
	pause := sampleEach
	if s.told {
		pause = sampleAgain
	}
	return !s.work && now.Sub(s.began) >= spinDoubt && now.Sub(s.sampled) >= pause
}

// take takes a look at the compiled code, and reports whether the thread spins.
func (s *spin) take(now time.Time, seen *stacks.Process, has usage) bool {
	s.sampled = now
	if s.firstAt.IsZero() {
		s.first, s.firstAt = has, now
	}
	main := &seen.Threads[0]
	moved := func(err error) bool { return errors.Is(err, stacks.ErrMoves) }
	if len(main.Native) == 0 || len(main.Python) == 0 || slices.ContainsFunc(main.Errors, moved) {
		return false // nobody knows
	}
	if main.Registers != 0 && s.samples > 0 && has.main == s.ran {
		return false // it had no CPU since
	}
	s.ran = has.main
	s.waits = main.Wait.Class == waitclass.Collective || main.Wait.Class == waitclass.GPU
	line, inner := main.Python[0].Line, &main.Native[0]
	if s.samples == 0 {
		s.low, s.high = line, line
		s.counter, s.registers, s.still = main.Counter, main.Registers, main.Registers != 0
	}
	s.samples++
	s.low, s.high = min(s.low, line), max(s.high, line)
	s.still = s.still && main.Registers == s.registers && max(main.Counter, s.counter)-min(main.Counter, s.counter) <= spinCode &&
		(main.Wait.Class == waitclass.OwnCode || main.Wait.Class == waitclass.Lock)
	s.library = s.library || !interpreter(inner.Object)
	if strings.HasPrefix(inner.Symbol, "_PyEval_EvalFrame") { // Python/ceval.c, exported by each version
		s.loops++
	}
	if asks(main.Native) {
		s.asks++
	}
	s.work = s.work || s.library && !s.still || s.high-s.low > spinLines || s.takes(now, has)
	waits := s.still || s.asks >= spinAsks || float64(s.loops) >= spinOwn*float64(s.samples) && len(s.places) <= spinFlag
	return !s.work && waits && s.samples >= spinSamples && now.Sub(s.began) >= spinTime
}

// takes reports whether its processes take memory, read or write, or compute beside it.
func (s *spin) takes(now time.Time, has usage) bool {
	allowed := uint64(1 + now.Sub(s.firstAt).Seconds())
	return has.faults-min(has.faults, s.first.faults) > spinFaults*allowed || has.bytes-min(has.bytes, s.first.bytes) > spinBytes*allowed ||
		s.samples >= spinSamples && float64(has.others-s.first.others) > spinOthers*float64(has.main-s.first.main)
}

// asks reports whether the interpreter's loop has called what asks the clock, or the kernel for
// the state of a file.
func asks(frames []unwind.Frame) bool {
	for _, f := range frames {
		if strings.HasPrefix(f.Symbol, "_PyEval_EvalFrame") {
			return false
		}
		if f.Object == "[vdso]" || strings.Contains(f.Symbol, "PyTime_") || slices.Contains(questions, strings.TrimLeft(f.Symbol, "_")) {
			return true
		}
	}
	return false
}

// questions are functions of the C library (POSIX, Linux).
var questions = []string{
	"clock_gettime", "gettimeofday", "time", "sched_yield", "getpid", "stat", "stat64", "fstat", "fstatat", "fstatat64", "lstat", "access", "faccessat", "poll", "ppoll", "select", "epoll_wait", "kill",
}

// interpreter reports whether a file is the interpreter, or what it stands on: not one of a
// library that computes.
func interpreter(object string) bool {
	name := path.Base(object)
	return slices.ContainsFunc([]string{"python", "libpython", "libc.so", "libc-", "libm.so", "libm-", "libpthread", "ld-linux", "ld-musl", "[vdso]"}, func(begin string) bool {
		return strings.HasPrefix(name, begin)
	})
}
