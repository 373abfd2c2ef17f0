package incident

import "slices"

// Parties says whose a fault is: the jobs and the processes that its evidence names, as
// far as they are known.
type Parties struct {
	Jobs      []Job
	Processes []Process
}

// Process is a pid of a machine; the rest is "" where nothing tells it. Started is since the boot.
type Process struct {
	Host, PID, Boot, Started string
	Job                      Job
}

// Is reports whether both can be one process. Pids are used again: boot, pid and start name one
// process. Where one side does not say when it was started, another job is another process.
func (p Process) Is(o Process) bool {
	switch {
	case !p.named(o):
		return false
	case p.Started != "" && o.Started != "":
		return p.Started == o.Started && (p.Boot == "" || o.Boot == "" || p.Boot == o.Boot)
	default:
		return p.Job.ID == "" || o.Job.ID == "" || p.Job.Is(o.Job)
	}
}

// named reports whether both have one name.
func (p Process) named(o Process) bool { return p.Host == o.Host && p.PID == o.PID }

// Job is an id inside its domain, "" where nothing tells that.
type Job struct{ ID, Domain string }

// Is reports whether both can be one job.
func (j Job) Is(other Job) bool {
	return j.ID == other.ID && (j.Domain == "" || other.Domain == "" || j.Domain == other.Domain)
}

// Add takes what one piece of evidence names; "" is not known.
func (p *Parties) Add(process Process) {
	if job := process.Job; job.ID != "" && !slices.Contains(p.Jobs, job) {
		p.Jobs = append(p.Jobs, job)
	}
	if process.PID != "" && !slices.Contains(p.Processes, process) {
		p.Processes = append(p.Processes, process)
	}
}

// relation is what is known of two parties.
type relation uint8

const (
	unknown relation = iota
	same
	different
)

// to compares jobs, or processes where one side knows no job.
func (p Parties) to(other Parties) relation {
	if r := compare(p.Jobs, other.Jobs, Job.Is); r != unknown {
		return r
	}
	return compare(p.Processes, other.Processes, Process.Is)
}

// meets reports whether a process of both can be one, or no pid is of both: what a link shares
// may be a pid that is none of theirs.
func (p Parties) meets(other Parties) bool {
	named := false
	for _, a := range p.Processes {
		for _, b := range other.Processes {
			if a.Is(b) {
				return true
			}
			named = named || a.named(b)
		}
	}
	return !named
}

func compare[T any](a, b []T, is func(T, T) bool) relation {
	switch {
	case len(a) == 0 || len(b) == 0:
		return unknown
	case slices.ContainsFunc(a, func(one T) bool { return slices.ContainsFunc(b, func(other T) bool { return is(one, other) }) }):
		return same
	}
	return different
}

// fits reports whether l may connect the parties of cause and effect: a pid that both share is
// one process, a machine that both
// share makes nothing of one job the cause of something of another, and what is trusted
// less explains only what befell its own.
func (l *Link) fits(cause, effect Verdict) bool {
	if l.OfProcess && !cause.Parties().meets(effect.Parties()) {
		return false
	}
	weaker := cause.Trust() < effect.Trust() && !l.Own
	if !l.Wide && !weaker {
		return true
	}
	relation := cause.Parties().to(effect.Parties())
	return (!l.Wide || relation != different) && (!weaker || relation == same)
}
