//go:build linux && (amd64 || arm64)

package identity

import (
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// speakers remembers which domain a user speaks for, so that records without end do not have
// all ranks gone through and /proc read for each.
type speakers struct {
	sync.Mutex // guards what follows
	since      time.Time
	of         map[speaker]string
}

type speaker struct {
	user   uint32
	job    string // "" in a tenant's rooms, where it does not matter
	tenant string
}

const (
	speakersFor  = 5 * time.Second // how long an answer counts
	mostSpeakers = 1024            // answers that are kept
)

// DomainOf is the domain of a job for which somebody on this machine speaks, by his user and
// his cgroup of the unified hierarchy ("": not known). In a pod, a container or a Slurm job that
// cgroup says it, as it does for ranks. Else it is that of the ranks which this user has in the
// job here. Where he has none, or has ranks of that name in several domains, it is his own, whose
// jobs nobody else runs. It never is the domain of another user's job.
func (t *Tracker) DomainOf(user uint32, cgroup, job string) string {
	who := speaker{user: user, tenant: procfs.TenantOf(cgroup)}
	if who.tenant == "" {
		who.job = job
	}
	if domain, known := t.speakers.known(who); known {
		return domain
	}
	if who.tenant != "" {
		m := procfs.MembershipIn(cgroup)
		domain := domainOf(m, t.proc.pods.named(m.PodUID).namespace, user)
		t.speakers.keep(who, domain)
		return domain
	}
	ranks := t.ranksOf(job)
	if len(ranks) == 0 { // of any name that a stranger thinks of
		return domainOfUser(user)
	}
	domain := t.domainAmong(ranks, user)
	t.speakers.keep(who, domain)
	return domain
}

func (s *speakers) known(who speaker) (domain string, known bool) {
	s.Lock()
	defer s.Unlock()
	if time.Since(s.since) > speakersFor {
		return "", false
	}
	domain, known = s.of[who]
	return domain, known
}

func (s *speakers) keep(who speaker, domain string) {
	s.Lock()
	defer s.Unlock()
	if now := time.Now(); now.Sub(s.since) > speakersFor || len(s.of) >= mostSpeakers {
		s.since, s.of = now, map[speaker]string{}
	}
	s.of[who] = domain
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
