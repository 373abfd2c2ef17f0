package incident

import "slices"

// Parties says whose a fault is: the jobs and the processes that its evidence names, as
// far as they are known.
type Parties struct{ Jobs, Processes []string }

// Add takes what one piece of evidence names; "" is not known.
func (p *Parties) Add(job, host, pid string) {
	if job != "" && !slices.Contains(p.Jobs, job) {
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
	for _, pair := range [][2][]string{{p.Jobs, other.Jobs}, {p.Processes, other.Processes}} {
		switch a, b := pair[0], pair[1]; {
		case len(a) == 0 || len(b) == 0:
		case slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) }):
			return same
		default:
			return different
		}
	}
	return unknown
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
