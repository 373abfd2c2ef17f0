package pyexceptionreceiver

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/pyexception"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// A program may display exceptions without end: it calls sys.excepthook itself. What is
// told of one process in a window is bounded, and of the processes of one domain: a node
// has some hundred ranks, and all of them can fail at once.
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

// displays remembers what processes displayed. It goes by the times of the events.
type displays struct {
	since     time.Time // when the window began
	domains   map[string]int
	list      fairlru.List[*process]
	processes map[uint32]*fairlru.Element[*process]
	ended     []identity.Exit // the last ones
}

// process is one that displayed an exception.
type process struct {
	pid  uint32
	told int // in this window
	last *display
}

// display is an exception of a process.
type display struct {
	event *pyexception.Event
	of    identity.Process
}

func newDisplays() *displays {
	return &displays{domains: map[string]int{}, processes: map[uint32]*fairlru.Element[*process]{}}
}

// add takes an exception and reports whether a record is made of it now. final is the end
// of its process, where that was heard of first.
func (d *displays) add(e *pyexception.Event, of *identity.Process) (tell bool, final string) {
	if e.Time.Sub(d.since) >= window || e.Time.Before(d.since) {
		d.since = e.Time
		clear(d.domains)
		d.list.Each(func(p *process) { p.told = 0 })
	}
	for i := range d.ended {
		if same(&d.ended[i].Process, of) {
			return true, finality(e, &d.ended[i])
		}
	}
	p := d.process(e.PID, of.Domain)
	p.last = &display{e, *of}
	if _, known := d.domains[of.Domain]; !known && len(d.domains) >= mostDomains || p.told >= mostOfProcess || d.domains[of.Domain] >= mostOfDomain {
		return false, ""
	}
	p.told++
	d.domains[of.Domain]++
	return true, ""
}

func same(a, b *identity.Process) bool {
	return a.PID == b.PID && a.StartTime.Equal(b.StartTime)
}

func (d *displays) process(pid uint32, domain string) *process {
	if e := d.processes[pid]; e != nil {
		d.list.Touch(e, fairlru.Little)
		return e.Value
	}
	for d.list.Len() >= mostProcesses {
		victim, _ := d.list.Victim()
		d.forget(victim.Value.pid)
	}
	p := &process{pid: pid}
	d.processes[pid] = d.list.Add(p, fairlru.Little, domain)
	return p
}

// exited takes the end of a process and returns its last exception, if that is to be told
// with it, and what it was to the end.
func (d *displays) exited(e *identity.Exit) (last *display, final string) {
	known := d.processes[e.PID]
	if known == nil {
		d.ended = append(d.ended, *e)
		if len(d.ended) > ends {
			d.ended = append(d.ended[:0], d.ended[1:]...)
		}
		return nil, ""
	}
	d.forget(e.PID)
	last = known.Value.last
	if !same(&last.of, &e.Process) {
		return nil, ""
	}
	if final = finality(last.event, e); final == "" {
		return nil, ""
	}
	return last, final
}

// What the last exception of a process was to its end.
const (
	finalStatus = "status" // it ended with the status of an exception that nobody caught
	finalBefore = "before" // it ended by another failure, later
)

// exceptionStatus is the exit status after an exception that nobody caught (Modules/main.c).
const exceptionStatus = 1

// finality is "" where the exception was not the end of its process: a thread's, or of a
// process that ended well, or long after.
func finality(e *pyexception.Event, end *identity.Exit) string {
	switch after := end.Time.Sub(e.Time); {
	case !end.Failed(), e.Thread != e.PID, after > lasting, after < -time.Second:
		return ""
	case end.Signal == 0 && end.Code == exceptionStatus:
		return finalStatus
	}
	return finalBefore
}

func (d *displays) forget(pid uint32) {
	d.list.Remove(d.processes[pid])
	delete(d.processes, pid)
}
