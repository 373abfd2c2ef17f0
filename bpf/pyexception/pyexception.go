//go:build linux && (amd64 || arm64)

// Package pyexception reports each exception that the Python interpreter of a process
// displays: type, message and the innermost lines of its traceback, read while the thread
// is about to display it. It reports those of C++, too, that end a process, as the runtime of C++
// displays them. Nothing in the process changes.
package pyexception

//go:generate go tool bpf2go -go-package pyexception -tags linux -target amd64,arm64 -type event -type terminated -type mark -type frame -type relation -type value bpf pyexception.bpf.c

import (
	"cmp"
	"errors"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Name of the probe in reports.
const Name = "pyexception"

// DefaultMaxInterpreters bounds how many files are attached at a time: a container image
// has one.
const DefaultMaxInterpreters = 16

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung            string // use this rung and no other
	RingBytes       uint32 // size of the ring, a power of two and at least a page; 0: 1 MiB, 14 exceptions
	ProcRoot        string // where the host's /proc is mounted; "": HOST_PROC from the environment, else /proc
	MaxInterpreters int    // attached at a time, 0: DefaultMaxInterpreters
	// NoMessages leaves the messages of exceptions, and their arguments, unread.
	NoMessages bool
	// Wanted says whether an exception of a process is read from the ring; nil: of each.
	// What other programs with the same interpreter display stays where it is.
	Wanted func(pid uint32) bool
}

// Probe reports exceptions of the interpreters that Watch found. Read is for one
// goroutine and Watch for one other; the remaining methods are safe beside them.
type Probe struct {
	uprobe.Events[Event]

	hooks    *hooks
	watch    *uprobe.Watcher
	runtimes []*uprobe.Watcher // of libraries of C++
}

// Open loads the probe and has it fire on a function of this program. It is attached to
// nothing until Watch.
func Open(opts Options) (*Probe, error) {
	try := func() (*hooks, bool, error) {
		closed, err := selfTest()
		if err != nil {
			return nil, false, err
		}
		h, err := openHooks(opts.RingBytes, !opts.NoMessages)
		if err != nil {
			return nil, false, errors.Join(err, <-closed)
		}
		h.selfTest = closed
		return h, true, nil
	}
	hooks, report, err := ladder.Climb(Name, opts.Rung, []ladder.Rung[*hooks]{{ID: RungUprobe, Try: try}})
	if err != nil {
		return nil, err
	}
	p := &Probe{hooks: hooks, watch: uprobe.NewWatcher(procfs.Open(opts.ProcRoot), uprobe.Libraries{
		Names: []string{"python*", "libpython*"}, Max: cmp.Or(opts.MaxInterpreters, DefaultMaxInterpreters), Attach: hooks.attachTo, Keep: keep,
	})}
	for _, name := range runtimes { // a process maps them at different times, and is not looked at again once it has what is looked for
		p.runtimes = append(p.runtimes, uprobe.NewWatcher(procfs.Open(opts.ProcRoot), uprobe.Libraries{
			Names: []string{name}, Max: cmp.Or(opts.MaxInterpreters, DefaultMaxInterpreters), Attach: hooks.attachToRuntime, Keep: keep,
		}))
	}
	p.Begin(uprobe.Source[Event]{
		Name: Name, Report: report, Reader: hooks.reader, Decode: decodeOf(opts.Wanted),
		Dropped: hooks.lost, Crowded: hooks.crowded, Close: func() error {
			errs := []error{p.watch.Close()}
			for _, w := range p.runtimes {
				errs = append(errs, w.Close())
			}
			return errors.Join(append(errs, hooks.close())...)
		},
	})
	return p, nil
}

// keep is in rounds of Watch, which are seconds.
const keep = 60

// Watch attaches the probe to the interpreters that these processes have mapped, each file
// once, and detaches it from files that none of them has any more, so many rounds later: a rank that
// fails at its start is often started again. A uprobe belongs to a
// file: other processes that map it are seen too, also those that begin to. Call it again
// now and then. An interpreter of a version that is not known has failed, by name. What is counted are interpreters;
// Err tells of runtimes of C++, too.
func (p *Probe) Watch(processes []probe.Process) (probe.Watched, error) {
	watched, err := p.watch.Watch(processes)
	if err != nil {
		return watched, err
	}
	for _, w := range p.runtimes {
		beside, err := w.Watch(processes)
		if err != nil {
			return watched, err
		}
		watched.Err = errors.Join(watched.Err, beside.Err)
	}
	return watched, nil
}
