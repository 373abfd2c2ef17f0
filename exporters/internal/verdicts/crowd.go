package verdicts

import (
	"cmp"
	"time"
)

// What is told of one pattern and one owner within a time: on one machine, and in all. Who
// has more root causes of one kind makes them, or has one trouble.
const (
	MostTold       = 32
	MostToldOfJobs = 256
	ToldWithin     = 10 * time.Minute
)

// mostOwners bounds what is known of owners: 8,192 names of 256 bytes are 2 MiB.
const mostOwners = 8192

// Crowd bounds what is told of the faults of one owner, so that a user whose jobs fail
// without end holds up nothing that is told of others: each message takes a request, and
// receivers of messages take few. An owner is a job's domain, as the node tells it (a user, a
// namespace, a job of Slurm), or where no job is named the machine. Its zero value is ready.
type Crowd struct {
	began time.Time
	told  map[owner]int
}

// owner is whose faults are counted; node is "" for those of all machines.
type owner struct{ pattern, domain, node string }

// Full reports whether no more is told of the owner of a verdict for now.
func (c *Crowd) Full(f *Found, now time.Time) bool {
	if c.told == nil || now.Sub(c.began) >= ToldWithin || len(c.told) >= mostOwners {
		c.began, c.told = now, map[owner]int{}
	}
	of := ownerOf(f)
	return c.told[of] >= MostTold || of.domain != "" && c.told[owner{of.pattern, of.domain, ""}] >= MostToldOfJobs
}

// Note counts what was told.
func (c *Crowd) Note(f *Found) {
	of := ownerOf(f)
	c.told[of]++
	if of.domain != "" {
		c.told[owner{of.pattern, of.domain, ""}]++
	}
}

func ownerOf(f *Found) owner {
	return owner{f.Pattern, f.Culprit["job_domain"], cmp.Or(f.Culprit["node"], f.Culprit["host"], f.On)}
}
