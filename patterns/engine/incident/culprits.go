package incident

import (
	"math"
	"slices"
)

// Culprits are whom a verdict accuses, or whom it names where it accuses nobody for sure.
type Culprits struct {
	Ranks                  []int // of its job
	Processes, GPUs, Hosts []string
}

// Add takes what one piece of evidence names; "" is not known.
func (a *Culprits) Add(host, pid, gpu string) {
	for _, one := range []struct {
		to    *[]string
		thing string
	}{{&a.Hosts, host}, {&a.Processes, pid}, {&a.GPUs, gpu}} {
		name := host
		if one.to != &a.Hosts {
			name += "\x00" + one.thing
		}
		if one.thing != "" && !slices.Contains(*one.to, name) {
			*one.to = append(*one.to, name)
		}
	}
}

// others reports whether b are surely not among a: another rank of one job, or something
// on another machine.
func (a Culprits) others(b Culprits, oneJob bool) bool {
	switch {
	case meet(a.Processes, b.Processes), meet(a.GPUs, b.GPUs), oneJob && meet(a.Ranks, b.Ranks):
		return false
	case oneJob && len(a.Ranks) > 0 && len(b.Ranks) > 0:
		return true
	default:
		return len(a.Hosts) > 0 && len(b.Hosts) > 0 && !meet(a.Hosts, b.Hosts)
	}
}

func meet[T comparable](a, b []T) bool {
	return slices.ContainsFunc(a, func(one T) bool { return slices.Contains(b, one) })
}

// blames reports whether effect is sure about a culprit that cause knows nothing of: then
// it is an incident of its own. What may have befallen the machine alone is a guess, and explains
// nothing of it that is sure. Where effect was told before cause began, cause names only
// whom it began with: the peers that went down later lend it nothing.
func (l *Link) blames(cause, effect Verdict) bool {
	accused, sure := effect.Accuses(math.MaxInt64)
	switch {
	case !sure:
		return false
	case l.Alone && !cause.Full():
		return true
	}
	until := int64(math.MaxInt64)
	if began := cause.Began(); effect.Onset() < began {
		until = began
	}
	named, surely := cause.Accuses(until)
	if !surely {
		named = cause.Names(until)
	}
	oneJob := l.OfJob || cause.Parties().to(effect.Parties()) != different
	return named.others(accused, oneJob)
}
