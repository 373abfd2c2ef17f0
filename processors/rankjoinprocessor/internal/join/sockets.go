package join

import (
	"container/list"
	"maps"
	"slices"
	"time"
)

// sockets are the socket stalls of one job.
type sockets struct {
	key     string
	job     string // "" of ranks without a job id
	procs   map[procKey]*process
	stalls  int
	world   int   // as the newest record has it, 0 where none does
	worldAt int64 // time of that record
	place   *list.Element
}

// watch holds the socket stalls of all jobs. A flood of them costs no dump: it
// has its own bounds.
type watch struct {
	options Options
	jobs    map[string]*sockets
	order   *list.List // of *sockets, the one quiet longest first
	stats   Stats
	expired time.Time // when the old were last looked for
}

func newWatch(options Options) *watch {
	return &watch{options: options, jobs: map[string]*sockets{}, order: list.New()}
}

// add enters a record and reports whether it changes what is known of a moment.
func (w *watch) add(p *parsedStall, now time.Time, moment int64) (changes bool) {
	w.stats.Stalls++
	s := w.of(p)
	if p.world > 0 && p.at >= s.worldAt {
		s.world, s.worldAt = p.world, p.at
	}
	proc := s.procs[p.process]
	if proc != nil {
		if known := proc.stalls[p.id]; known != nil {
			before := known.momentOf(proc, moment)
			proc.take(p)
			known.merge(p, now)
			return before != known.momentOf(proc, moment)
		}
	}
	if w.stats.HeldStalls >= int64(w.options.Stalls) && !w.evictOther(s) {
		w.stats.EvictedStalls++
		w.tidy(s)
		return false
	}
	if proc == nil {
		proc = &process{rank: p.rank, host: p.host, stalls: map[string]*stall{}}
		s.procs[p.process] = proc
	}
	proc.take(p)
	fresh := newStall(p, now)
	proc.stalls[p.id] = fresh
	s.stalls++
	w.stats.HeldStalls++
	return fresh.openAt(moment) || p.exited && p.at <= moment
}

func newStall(p *parsedStall, now time.Time) *stall {
	s := &stall{
		local: p.local, peer: p.peer, peerRank: p.peerRank, onset: p.onset, last: p.at, turned: p.at, now: p.says, heard: now,
	}
	if p.ended {
		s.ended = p.at
	}
	return s
}

func (w *watch) of(p *parsedStall) *sockets {
	if s := w.jobs[p.job]; s != nil {
		w.order.MoveToBack(s.place)
		return s
	}
	if len(w.jobs) >= w.options.Runs {
		w.forget(w.order.Front().Value.(*sockets), true)
	}
	s := &sockets{key: p.job, procs: map[procKey]*process{}}
	if p.named {
		s.job = p.job
	}
	s.place = w.order.PushBack(s)
	w.jobs[p.job] = s
	return s
}

// evictOther makes room by the job that has been quiet longest, if it is another.
func (w *watch) evictOther(mine *sockets) bool {
	oldest := w.order.Front().Value.(*sockets)
	if oldest == mine {
		return false
	}
	w.forget(oldest, true)
	return true
}

func (w *watch) forget(s *sockets, evicted bool) {
	if evicted {
		w.stats.EvictedStalls += int64(s.stalls)
	}
	w.stats.HeldStalls -= int64(s.stalls)
	w.order.Remove(s.place)
	delete(w.jobs, s.key)
}

// tidy forgets a job without a stall: there was no room for its first.
func (w *watch) tidy(s *sockets) {
	if s.stalls == 0 {
		w.forget(s, false)
	}
}

// expire forgets the stalls of which nothing was heard for long, ended or not:
// one that lasts is repeated. It looks ten times in that time.
func (w *watch) expire(now time.Time) {
	if now.Sub(w.expired) < w.options.Keep/10 {
		return
	}
	w.expired = now
	for _, s := range w.jobs {
		for key, proc := range s.procs {
			before := len(proc.stalls)
			maps.DeleteFunc(proc.stalls, func(_ string, one *stall) bool { return now.Sub(one.heard) >= w.options.Keep })
			gone := before - len(proc.stalls)
			s.stalls -= gone
			w.stats.HeldStalls -= int64(gone)
			if len(proc.stalls) == 0 {
				delete(s.procs, key)
			}
		}
		w.tidy(s)
	}
}

// beside returns the stalls of the job whose dumps a run holds, nil for none.
// Where the dumps name no job, it is the only one whose ranks stand on the hosts
// of the dumps at that time.
func (w *watch) beside(r *run, t int64) *sockets {
	if r.job != "" {
		return w.jobs[r.job]
	}
	var found *sockets
	for _, key := range slices.Sorted(maps.Keys(w.jobs)) {
		if s := w.jobs[key]; s.standsWith(r, t) {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// standsWith reports whether a rank of r has a stall here at that time, on the
// host and in the process of its dump.
func (s *sockets) standsWith(r *run, t int64) bool {
	for _, proc := range s.procs {
		host, spoke := r.ranks[proc.rank]
		same := spoke && host.Name != "" && host.Name == proc.host.Name && (host.PID == 0 || host.PID == proc.host.PID)
		if same && proc.openAt(t) {
			return true
		}
	}
	return false
}

func (p *process) openAt(t int64) bool {
	for _, s := range p.stalls {
		if s.openAt(t) {
			return true
		}
	}
	return false
}
