// Package ncclsocketstall finds the rank that a stalled job waits for, from the
// socket stalls of all its ranks that one engine sees.
package ncclsocketstall

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// The events of the detector's findings.
const (
	eventCulprit = rule.FindingPrefix + "nccl_socket_stall"
	eventEnd     = rule.FindingPrefix + "nccl_socket_stall.end"
)

// The records it reads: stalls of sockets, and what the kernel says of processes.
const (
	eventStall    = "nccl.socket.stall"
	eventStallEnd = "nccl.socket.stall.end"
)

const (
	// settle is how long records of other ranks are waited for while the graph has
	// open ends: every agent takes a snapshot a second.
	settle = int64(time.Second)
	// wane is how long a conclusion is kept after a stall ended: the others of the
	// job end with it, each in the next snapshot of its node. Records of that may be
	// late: one that was told is kept for the lateness more, unless all others are
	// reported after it.
	wane = int64(2500 * time.Millisecond)
	// fading is after how long without a repetition (every 10 s) a stall counts no
	// more while others of its job are repeated; lost, after how long without any
	// the job is forgotten.
	fading = int64(35 * time.Second)
	lost   = int64(10 * time.Minute)
	// refresh is how often an unchanged finding is told again: its end grows.
	refresh = int64(10 * time.Second)
)

// Caps. 16,384 ranks with six peers in both directions are 196,608 stalls.
const (
	maxStalls = 262_144
	maxJobs   = 1_024
	maxFacts  = 16_384
)

// Detector describes the detector for the library.
func Detector() rule.Detector {
	return rule.Detector{
		Name: "nccl_socket_stall",
		Logs: slices.Concat([]string{eventStall, eventStallEnd}, factEvents),
		Findings: map[string][]string{
			eventCulprit: {eventStall},
			eventEnd:     {eventStall},
		},
		Attributes: append(slices.Clone(stallAttributes), factAttributes...),
		New: func(l rule.Limits) rule.Algorithm {
			return &detector{lateness: l.Lateness, jobs: map[string]*job{}, facts: newFacts()}
		},
	}
}

// detector is the state: the open stalls of each job, and what the kernel said
// of processes lately.
type detector struct {
	lateness int64
	jobs     map[string]*job
	facts    facts
	stalls   int // in all jobs
	evicted  uint64
}

// Observe takes in one record.
func (d *detector) Observe(r *rule.Record) bool {
	if r.Name == eventStall || r.Name == eventStallEnd {
		return d.observeStall(r)
	}
	if !d.facts.observe(r) {
		return false
	}
	d.evicted += d.facts.trim(maxFacts)
	d.reconsider(r)
	return true
}

// reconsider has the jobs of a fact's host judged anew.
func (d *detector) reconsider(r *rule.Record) {
	host := rule.Text(r.Resource, "host.name")
	for _, j := range d.jobs {
		if j.hosts[host] > 0 {
			j.Changed = true
		}
	}
}

func (d *detector) observeStall(r *rule.Record) bool {
	in, ok := readStall(r)
	if !ok {
		return false
	}
	j := d.jobs[in.job]
	if j == nil {
		if r.Name == eventStallEnd && len(d.jobs) >= maxJobs {
			return false
		}
		j = newJob(in.job)
		d.jobs[in.job] = j
	}
	d.stalls += j.take(&in)
	for d.stalls > maxStalls || len(d.jobs) > maxJobs {
		d.evict()
	}
	return true
}

// evict forgets the job that was quiet for longest; the only one loses its
// oldest stalls.
func (d *detector) evict() {
	var oldest *job
	for _, j := range d.jobs {
		if oldest == nil || cmp.Or(cmp.Compare(j.Last, oldest.Last), cmp.Compare(j.Name, oldest.Name)) < 0 {
			oldest = j
		}
	}
	dropped := 0
	if len(d.jobs) > 1 {
		dropped = len(oldest.Stalls)
		delete(d.jobs, oldest.Name)
	} else {
		dropped = oldest.dropOldest(maxStalls / 8)
	}
	d.stalls -= dropped
	d.evicted += uint64(max(dropped, 1))
}

// Due is the earliest moment at which a job has something to decide.
func (d *detector) Due() int64 {
	due := int64(0)
	for _, j := range d.jobs {
		if at := j.due(); at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	return due
}

// Decide judges the jobs that are due.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	d.facts.expire(now - keepFacts)
	for _, name := range slices.Sorted(maps.Keys(d.jobs)) {
		j := d.jobs[name]
		if at := j.due(); at == 0 || at > now {
			continue
		}
		before := len(j.Stalls)
		findings = append(findings, j.decide(now, d)...)
		d.stalls += len(j.Stalls) - before
		if len(j.Stalls) == 0 && j.Told == nil {
			delete(d.jobs, name)
		}
	}
	return findings
}

// Evicted counts stalls and facts that were forgotten because of the caps.
func (d *detector) Evicted() uint64 { return d.evicted }
