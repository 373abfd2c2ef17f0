//go:build linux && (amd64 || arm64)

package identity

import (
	"sync"
	"time"
)

// speakers remembers which domain a user speaks for, so that records without end do not have
// /proc read for each.
type speakers struct {
	sync.Mutex // guards what follows
	since      time.Time
	of         map[speaker]string
}

type speaker struct {
	user uint32
	job  string
}

const (
	speakersFor  = 5 * time.Second // how long an answer counts
	mostSpeakers = 1024            // answers that are kept
)

// DomainOf is the domain of a job for which a user of this machine speaks: that of the ranks
// which this user has in it here. Where he has none, or has ranks of that name in several
// domains, it is his own, whose jobs nobody else runs. It never is the domain of another
// user's job.
func (t *Tracker) DomainOf(user uint32, job string) string {
	ranks := t.ranksOf(job)
	if len(ranks) == 0 {
		return domainOfUser(user)
	}
	t.speakers.Lock()
	defer t.speakers.Unlock()
	if now := time.Now(); now.Sub(t.speakers.since) > speakersFor || len(t.speakers.of) >= mostSpeakers {
		t.speakers.since, t.speakers.of = now, map[speaker]string{}
	}
	who := speaker{user, job}
	domain, known := t.speakers.of[who]
	if !known {
		domain = t.domainAmong(ranks, user)
		t.speakers.of[who] = domain
	}
	return domain
}

// ranksOf are the outermost processes of the living ranks of a job, of all domains.
func (t *Tracker) ranksOf(job string) (ranks []Process) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.table.queues[livingRank].Each(func(r *record) {
		if !r.Inherited && job != "" && (r.JobID == job || r.JobID == "" && r.Rendezvous == job) {
			ranks = append(ranks, r.Process)
		}
	})
	return ranks
}

func (t *Tracker) domainAmong(ranks []Process, user uint32) string {
	found := ""
	for _, r := range ranks {
		if r.Domain == "" || r.Domain == unknownDomain || r.Domain == found {
			continue
		}
		if of, err := t.proc.User(r.PID); err != nil || of != user {
			continue
		}
		if found != "" {
			return domainOfUser(user)
		}
		found = r.Domain
	}
	if found == "" {
		return domainOfUser(user)
	}
	return found
}
