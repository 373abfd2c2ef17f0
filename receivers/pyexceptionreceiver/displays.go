package pyexceptionreceiver

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// A program may display exceptions without end: it calls sys.excepthook itself. What is
// told of one process in a window is bounded, and of the processes of one domain: a node
// has some hundred ranks, and all of them can fail at once. As many again are told of those
// that their process ended of, which matter most.
const (
	window        = time.Minute
	mostOfProcess = 4
	mostOfDomain  = 1024
	mostDomains   = 256  // that are counted in a window; of others nothing is told
	mostProcesses = 1024 // whose last exception is remembered, shared by domain
)

// lasting is how long before the end of a process its last exception is that end: a rank
// that failed may wait for others as its interpreter ends, until a watchdog of NCCL ends it,
// by default after ten minutes.
const lasting = 10 * time.Minute

// ends are how many ends of processes are remembered for exceptions that are read later.
const ends = 256

// displays remembers what processes displayed, and admits what is told. It goes by the times of the
// events.
type displays struct {
	since     time.Time // when the window began
	domains   map[string]int
	list      fairlru.List[*process]
	processes map[identity.Born]*fairlru.Element[*process]
	ended     []identity.Exit // the last ones
	untold    int64           // exceptions that are not told, since they were asked for
}

// process is one that displayed an exception.
type process struct {
	born identity.Born
	told int // in this window
	last *display
}

// display is an exception of a process.
type display struct {
	event *pyexception.Event
	of    identity.Process
	told  bool
}

func newDisplays() *displays {
	return &displays{domains: map[string]int{}, processes: map[identity.Born]*fairlru.Element[*process]{}}
}

// admit reports whether one more is told: of a process, which was told so often in this window, and of
// its domain. end: its process ended of it. Ends are heard of late, so they never turn the window back.
func (d *displays) admit(told *int, domain string, at time.Time, end bool) bool {
	if at.Sub(d.since) >= window || !end && d.since.Sub(at) >= window {
		d.since = at
		clear(d.domains)
		d.list.Each(func(p *process) { p.told = 0 })
		*told = 0
	}
	times := 1
	if end {
		times = 2
	}
	_, known := d.domains[domain]
	if !known && len(d.domains) >= mostDomains || *told >= times*mostOfProcess || d.domains[domain] >= times*mostOfDomain {
		return false
	}
	*told++
	d.domains[domain]++
	return true
}

// add takes an exception and reports whether a record is made of it now. final is the end
// of its process, where that was heard of first.
func (d *displays) add(e *pyexception.Event, of *identity.Process) (tell bool, final string) {
	p := d.process(of)
	over := p.last != nil && mayEnd(p.last.event) && (!mayEnd(e) || tearsDown(p.last.event, e)) // the program had ended before
	for i := range d.ended {
		if d.ended[i].Born() != of.Born() {
			continue
		}
		if final = finality(e, &d.ended[i]); over {
			final = ""
		}
		if tell = d.admit(&p.told, of.Domain, e.Time, final != ""); !tell {
			d.untold++
		}
		if !over {
			p.last = &display{e, *of, true} // or counted
		}
		return tell, final
	}
	tell = d.admit(&p.told, of.Domain, e.Time, false)
	if over {
		if !tell {
			d.untold++
		}
		return tell, ""
	}
	d.leave(p)
	p.last = &display{e, *of, tell}
	return tell, ""
}

// programs are the outermost functions of what the main thread runs: of a script or command, and of
// python -m (Lib/runpy.py).
var programs = []string{"<module>", "_run_module_as_main"}

// mayEnd reports whether a process may end of an exception: it came out of the program that the main
// thread runs, as far as its traceback tells. That of a function of atexit, which CPython 3.8 and 3.9
// display after the one that ended the program (Modules/atexitmodule.c), begins at that function.
func mayEnd(e *pyexception.Event) bool {
	if e.Terminates {
		return true
	}
	if e.Thread != e.PID {
		return false
	}
	if len(e.Chain) == 0 {
		return true
	}
	x := &e.Chain[0]
	whole := len(x.Frames) > 0 && x.Levels <= len(x.Frames)
	return !whole || slices.Contains(programs, x.Frames[0].Function)
}

// tearsDown reports whether a process terminates while it still ends of an exception of Python: threads and destructors of
// C++ meet what that has left behind.
func tearsDown(program, e *pyexception.Event) bool {
	return e.Terminates && !program.Terminates && e.Time.Sub(program.Time) < lasting
}

// endsProgram reports whether an exception surely came out of the program that the main thread runs. Its outermost line that
// is no library's shows that, also of a traceback that was cut.
func endsProgram(e *pyexception.Event) bool {
	if e.Terminates {
		return true
	}
	return e.Thread == e.PID && len(e.Chain) > 0 && len(e.Chain[0].Frames) > 0 && slices.Contains(programs, e.Chain[0].Frames[0].Function)
}

// waits are exceptions of a program that a shell may start until what it needs answers: an address, a service.
var waits = regexp.MustCompile(`Connect|[Tt]imeout|^gaierror$|^herror$|^URLError$|^HTTPError$|MaxRetry|^BrokenPipeError$|^KeyboardInterrupt$`)

// awaits reports whether an exception may say that another process, or the network, was not there.
func awaits(e *pyexception.Event) bool {
	class := classOf(e.Chain)
	return strings.HasPrefix(class, "store.") || strings.HasPrefix(class, "peer.") || strings.HasPrefix(class, "gloo.") || strings.HasPrefix(class, "nccl.") ||
		slices.ContainsFunc(e.Chain, func(x pyexception.Exception) bool { return waits.MatchString(x.Type) })
}

// quoted reports whether an exception that another process quoted is told: its rank ended of it, then.
func (d *displays) quoted(rank *identity.Process, at time.Time) bool {
	told := 0 // a process ends once
	is := d.admit(&told, rank.Domain, at, true)
	if !is {
		d.untold++
	}
	return is
}

// process is what is remembered of one.
func (d *displays) process(of *identity.Process) *process {
	born := of.Born()
	if e := d.processes[born]; e != nil {
		d.list.Touch(e, fairlru.Little)
		return e.Value
	}
	for d.list.Len() >= mostProcesses {
		victim, _ := d.list.Victim()
		d.forget(victim)
	}
	p := &process{born: born}
	d.processes[born] = d.list.Add(p, fairlru.Little, of.Domain)
	return p
}

// exited takes the end of a process and returns its last exception, if that is told
// with it, and what it was to the end. A child that has the identity of the rank, and a helper of its
// launch script, may fail while the rank lives. Where a wrapper passes the end of its child on as the
// rank's, it comes once more, and is no child's then.
func (d *displays) exited(e *identity.Exit) (last *display, final string) {
	if e.Inherited || e.Helper {
		return nil, ""
	}
	known := d.processes[e.Born()]
	if known == nil {
		d.ended = append(d.ended, *e)
		if len(d.ended) > ends {
			d.ended = append(d.ended[:0], d.ended[1:]...)
		}
		return nil, ""
	}
	defer d.forget(known)
	if last = known.Value.last; last == nil {
		return nil, ""
	}
	if final = finality(last.event, e); final == "" || !d.admit(&known.Value.told, last.of.Domain, e.Time, true) {
		return nil, ""
	}
	last.told = true
	return last, final
}

// What the last exception of a process was to its end.
const (
	finalStatus = "status" // it ended with the status of an exception that nobody caught, or the signal of one of C++
	finalBefore = "before" // it ended by another failure, later
)

// sigABRT is what std::terminate ends its process with: abort(3).
const sigABRT = 6

// exceptionStatus is the exit status after an exception that nobody caught (Modules/main.c).
const exceptionStatus = 1

// finality is "" where the exception was not the end of its process: a thread's, or of a
// process that ended well, or long after.
func finality(e *pyexception.Event, end *identity.Exit) string {
	switch after := end.Time.Sub(e.Time); {
	case !end.Failed(), e.Thread != e.PID && !e.Terminates, after > lasting, after < -time.Second:
		return ""
	case e.Terminates && end.Signal == sigABRT:
		return finalStatus
	case end.Signal == 0 && end.Code == exceptionStatus:
		return finalStatus
	}
	return finalBefore
}

func (d *displays) forget(p *fairlru.Element[*process]) {
	d.leave(p.Value)
	d.list.Remove(p)
	delete(d.processes, p.Value.born)
}

// leave counts the last exception of a process that is not the last any more, where it was not told.
func (d *displays) leave(p *process) {
	if p.last != nil && !p.last.told {
		d.untold++
	}
	p.last = nil
}
