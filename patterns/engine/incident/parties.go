package incident

import "slices"

// Parties says whose a fault is: the jobs and the processes that its evidence names, as
// far as they are known.
type Parties struct {
	Jobs      []Job
	Processes []string
}

// Job is an id inside its domain, "" where nothing tells that.
type Job struct{ ID, Domain string }

func (j Job) is(other Job) bool {
	return j.ID == other.ID && (j.Domain == "" || other.Domain == "" || j.Domain == other.Domain)
}

// Add takes what one piece of evidence names; "" is not known.
func (p *Parties) Add(job Job, host, pid string) {
	if job.ID != "" && !slices.Contains(p.Jobs, job) {
		p.Jobs = append(p.Jobs, job)
	}
	if process := host + "\x00" + pid; pid != "" && !slices.Contains(p.Processes, process) {
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
	if r := compare(p.Jobs, other.Jobs, Job.is); r != unknown {
		return r
	}
	return compare(p.Processes, other.Processes, func(a, b string) bool { return a == b })
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

// fits reports whether l may connect the parties of cause and effect: a machine that both
// share makes nothing of one job the cause of something of another, and what is trusted
// less explains only what befell its own.
func (l *Link) fits(cause, effect Verdict) bool {
	weaker := cause.Trust() < effect.Trust() && !l.Own
	if !l.Wide && !weaker {
		return true
	}
	relation := cause.Parties().to(effect.Parties())
	return (!l.Wide || relation != different) && (!weaker || relation == same)
}
