package cudaoomreceiver

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/tracecoreai/tracecore/bpf/cudaoom"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// A refusal of the driver is not yet the failure of a job: allocators free what
// they cache and ask again. PyTorch asks twice, with max_split_size_mb three
// times, while a graph is captured once (c10/cuda/CUDACachingAllocator.cpp, malloc);
// XLA and TensorFlow ask for a tenth less each time (BFCAllocator::Extend). So no
// number of refusals says that it is over; that the thread stops asking does, or
// its death.
const (
	// patience is the longest that a thread which goes on asking is waited for, in
	// times of settle.
	patience = 5
	// repeatAfter is the time between two records of one thread that is refused
	// again and again.
	repeatAfter = time.Minute
	// forgetAfter is how long a thread is remembered after its last refusal, so
	// that a late success is known for what it is.
	forgetAfter = 10 * time.Minute
	// maxThreads bounds the threads that are remembered. Domains and their processes share the
	// room: who has most loses the thread that was refused longest ago.
	maxThreads = 4096
)

// finding is what is told of a thread.
type finding struct {
	cudaoom.Event     // the last refusal, or the success that takes back what was told
	attempts      int // refusals since the last finding
	retried       bool
}

type thread struct{ pid, id uint32 }

// refusal is a thread that was refused.
type refusal struct {
	thread
	event    cudaoom.Event // the last
	attempts int           // since it was told; 0: nothing to tell
	first    time.Time     // of these attempts
	told     time.Time     // zero: never
}

// judge tells refusals that stand from those that were overcome. It has no clock.
type judge struct {
	settle           time.Duration
	domain           func(*cudaoom.Event) string // of the process
	threads          map[thread]*fairlru.Element[*refusal]
	order            fairlru.List[*refusal]
	retried, dropped int // counted since the last call of counts
}

func newJudge(settle time.Duration, domain func(*cudaoom.Event) string) *judge {
	return &judge{settle: settle, domain: domain, threads: map[thread]*fairlru.Element[*refusal]{}}
}

// observe takes an event. It returns a finding when it takes back what was told.
func (j *judge) observe(e *cudaoom.Event) *finding {
	key := thread{e.PID, e.Thread}
	known := j.threads[key]
	switch {
	case e.Succeeded && known == nil:
		return nil // its refusal was before our time
	case e.Succeeded:
		return j.succeeded(known.Value, e)
	case known == nil:
		known = j.order.Add(&refusal{thread: key}, fairlru.Some, j.domain(e), strconv.FormatUint(uint64(e.PID), 10))
		j.threads[key] = known
	default:
		j.order.Touch(known, fairlru.Some)
	}
	r := known.Value
	if r.attempts == 0 {
		r.first = e.Time
	}
	r.attempts++
	r.event = *e
	if len(j.threads) > maxThreads {
		j.dropped++
		victim, _ := j.order.Victim()
		j.forget(victim.Value)
	}
	return nil
}

func (j *judge) forget(r *refusal) {
	j.order.Remove(j.threads[r.thread])
	delete(j.threads, r.thread)
}

func (j *judge) succeeded(r *refusal, e *cudaoom.Event) *finding {
	j.forget(r)
	if r.told.IsZero() {
		j.retried++
		return nil
	}
	return &finding{Event: *e, attempts: r.attempts, retried: true}
}

// due returns what can be told at that time, oldest first, and forgets what is old.
func (j *judge) due(now time.Time) []finding {
	var out []finding
	for _, e := range j.threads {
		switch r := e.Value; {
		case r.attempts > 0 && j.stands(r, now):
			out = append(out, r.tell(now))
		case r.attempts == 0 && now.Sub(r.event.Time) > forgetAfter:
			j.forget(r)
		}
	}
	return inOrder(out)
}

// stands: it asked no more for a while, or goes on asking for too long.
func (j *judge) stands(r *refusal, now time.Time) bool {
	if !r.told.IsZero() && now.Sub(r.told) < repeatAfter {
		return false
	}
	return now.Sub(r.event.Time) >= j.settle || now.Sub(r.first) >= patience*j.settle
}

func (r *refusal) tell(now time.Time) finding {
	f := finding{Event: r.event, attempts: r.attempts}
	r.attempts, r.told = 0, now
	return f
}

// exited ends a process: what it was refused last, it did not get.
func (j *judge) exited(pid uint32, now time.Time) []finding {
	var out []finding
	for key, e := range j.threads {
		if key.pid != pid {
			continue
		}
		if e.Value.attempts > 0 {
			out = append(out, e.Value.tell(now))
		}
		j.forget(e.Value)
	}
	return inOrder(out)
}

func inOrder(findings []finding) []finding {
	slices.SortFunc(findings, func(a, b finding) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Thread, b.Thread))
	})
	return findings
}

// counts returns what was counted since the last call.
func (j *judge) counts() (retried, dropped int) {
	retried, dropped = j.retried, j.dropped
	j.retried, j.dropped = 0, 0
	return retried, dropped
}
