package stall

import (
	"cmp"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/activity"
)

// Memory is what is known of a process and its job, as it is kept for the next tracker.
type Memory struct {
	Domain     string `json:"domain,omitempty"`
	JobID      string `json:"job,omitempty"`
	Rendezvous string `json:"rendezvous,omitempty"`
	Port       int    `json:"port,omitempty"`
	World      int    `json:"world,omitempty"`

	Rank      int             `json:"rank"`
	Moved     bool            `json:"moved,omitempty"`     // it has moved data of the job
	Takes     bool            `json:"takes,omitempty"`     // it only receives
	Traffic   int             `json:"traffic,omitempty"`   // snapshots in which data moved, as far as these count
	Faulty    bool            `json:"faulty,omitempty"`    // the silence that stands is no pause to learn
	Pauses    []activity.Kept `json:"pauses,omitempty"`    // that the rank made
	Elsewhere []activity.Kept `json:"elsewhere,omitempty"` // that ranks on other nodes did
}

func (m *Memory) key() jobKey {
	return jobKey{owner: owner{m.Domain, m.JobID}, rendezvous: m.Rendezvous, port: m.Port, world: m.World}
}

// After is the memory after an absence.
func (m Memory) After(absence time.Duration) Memory {
	m.Pauses, m.Elsewhere = activity.Later(m.Pauses, absence), activity.Later(m.Elsewhere, absence)
	if activity.Outdated(absence) {
		m.Traffic = 0
	}
	return m
}

// Memory is what is known of a process; false where it is not watched.
func (t *Tracker) Memory(p *identity.Process) (m Memory, is bool) {
	r := t.ranks[p.PID]
	if r == nil || r.job == nil || r.now.Born() != p.Born() {
		return m, false
	}
	j, k := r.job, r.job.key
	m = Memory{
		Domain: k.domain, JobID: k.id, Rendezvous: k.rendezvous, Port: k.port, World: k.world,
		Rank: r.now.Rank, Moved: r.hasMoved(), Takes: r.onlyTakes(), Traffic: min(j.phases.traffic, t.o.PhaseLearning), Faulty: j.faulty || j.tainted >= max(j.moved, 0),
	}
	m.Pauses, m.Elsewhere = t.kept(j, m.Rank), t.kept(j, Unknown)
	return m, true
}

// kept are the pauses of a rank.
func (t *Tracker) kept(j *job, rank int) (all []activity.Kept) {
	for kind, pauses := range j.phases.pauses {
		if kind.rank != rank {
			continue
		}
		for _, one := range pauses {
			all = append(all, activity.Keep(t.at.Add(one.to-t.now), one.length(), kind.how))
		}
	}
	slices.SortFunc(all, func(a, b activity.Kept) int {
		return cmp.Or(cmp.Compare(a.How, b.How), cmp.Compare(a.End, b.End), cmp.Compare(a.Length, b.Length))
	})
	return all
}

// Recall begins with what another tracker knew. It is called before the first snapshot: its jobs are
// without ranks until that has them.
func (t *Tracker) Recall(all map[identity.Born]Memory, now time.Time) {
	for born, m := range all {
		t.recalled[born] = m
		j := t.jobs.of[m.key()]
		if j == nil {
			j = newJob(m.key())
			j.phases.traffic = t.o.PhaseLearning
			t.jobs.of[j.key] = j
			t.jobs.rests(j)
		}
		j.phases.traffic, j.faulty = max(0, min(j.phases.traffic, m.Traffic)), j.faulty || m.Faulty
		j.recall(m.Rank, m.Pauses, now)
		j.recall(Unknown, m.Elsewhere, now)
	}
}

func (j *job) recall(rank int, pauses []activity.Kept, now time.Time) {
	for _, kept := range pauses {
		if end, length, is := kept.Pause(now); is {
			to := end.Sub(now) // the clock of the tracker is at 0
			j.phases.learn(rank, kept.How, pause{to - length, to})
		}
	}
}
