package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// jobs are those of the ranks of this node; a job is gone an hour after its last
// rank.
type jobs map[jobKey]*job

// take sorts the ranks of this snapshot into jobs.
func (js jobs) take(all []*rank, c *clock) {
	for _, r := range all {
		key := keyOf(&r.now.Process)
		j := js[key]
		if j == nil {
			j = &job{id: r.now.JobID, moved: never, tainted: never}
			js[key] = j
		}
		if j.round != c.round {
			j.round, j.seen, j.ranks, j.halted, j.accused = c.round, c.now, j.ranks[:0], false, false
		}
		r.job = j
		j.ranks = append(j.ranks, r)
	}
}

// learn takes the silences that ended in this snapshot: of queues that had stood,
// and of ranks.
func (js jobs) learn(seen []*socket, c *clock, o *Options) {
	for _, s := range seen {
		if s.change.freed && !s.kind.Service() && s.kind != socketstall.Other {
			s.rank.job.ended(s.change.stood, c.last, o)
		}
	}
	for _, j := range js {
		if j.round == c.round {
			j.learn(c.last, c.now, o)
		}
	}
}

// forget drops jobs that are gone, and returns their ids.
func (js jobs) forget(c *clock, o *Options) []string {
	var gone []string
	for key, j := range js {
		if c.now-j.seen > o.PhaseMemory {
			delete(js, key)
			gone = append(gone, j.id)
		}
	}
	return gone
}

// jobKey tells jobs apart, those without an id by their store.
type jobKey struct {
	id, master  string
	port, world int
}

func keyOf(p *identity.Process) jobKey {
	if p.JobID != "" {
		return jobKey{id: p.JobID}
	}
	return jobKey{master: p.MasterAddr, port: p.MasterPort, world: p.WorldSize}
}

// job is the ranks of one job on this node.
type job struct {
	id      string
	phases  phases
	ranks   []*rank // of this snapshot
	round   uint64
	seen    time.Duration
	moved   time.Duration // data last moved on a collective socket of any rank
	halted  bool          // a rank is stopped, in this snapshot
	accused bool          // a stall with another cause than waiting is open
	waiting bool          // its ranks are told to wait, until data moves
	tainted time.Duration // when last a process was halted or the network failed
}

// suspect is the rank that fell silent first: whose last data is the oldest. One
// that only ever receives goes by what it received.
func (j *job) suspect() *rank {
	var first *rank
	oldest := time.Duration(Unknown)
	for _, r := range j.ranks {
		age := r.lastSent
		if age < 0 {
			age = r.lastReceived
		}
		if age > oldest {
			first, oldest = r, age
		}
	}
	return first
}

// learn takes the silences that ended in this snapshot and starts
// to measure the next. last is the time of the snapshot before.
func (j *job) learn(last, now time.Duration, o *Options) {
	moved := false
	for _, r := range j.ranks {
		j.moved = max(j.moved, r.moved)
		if !r.movedNow {
			continue
		}
		moved = true
		j.ended(r.movedBefore, last, o)
		r.baseAt, r.cpu, r.mainCPU, r.delayed = now, r.now.CPU, r.now.MainCPU, r.now.Delayed
	}
	if moved {
		j.phases.moved(now, o)
		j.waiting = false
	}
}

// ended notes that something which stood since from moved again after the
// snapshot before, which was at last. What was halted or cut off is no phase.
func (j *job) ended(from, last time.Duration, o *Options) {
	if from > never && last-from >= o.Interval && (j.tainted == never || j.tainted < from) {
		j.phases.silence(from, last, o)
	}
}
