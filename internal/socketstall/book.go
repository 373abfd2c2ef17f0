package socketstall

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Limits bound a book.
type Limits struct {
	Jobs   int // at once
	Stalls int // at once, of all jobs
}

// DefaultLimits are enough for 16,384 ranks with six peers in both directions,
// which are 196,608 stalls.
var DefaultLimits = Limits{Jobs: 1_024, Stalls: 262_144}

// Book holds the newest state of every stall, by job and process. It is bounded:
// beyond its limits the job that was quiet for longest goes. The same records give
// the same book. As JSON it is the same bytes for the same content.
type Book struct {
	limits  Limits
	jobs    map[string]*Job
	stalls  int
	evicted uint64
}

// Job is the stalls of one job.
type Job struct {
	Name      string              `json:"name"`
	ID        string              `json:"id,omitempty"` // "" of ranks without a job id
	Domain    string              `json:"domain,omitempty"`
	Processes map[string]*Process `json:"processes"` // by ProcessKey, while they have a stall
	World     int                 `json:"world,omitempty"`
	WorldAt   int64               `json:"world_at,omitempty"` // time of the record that says so
	Last      int64               `json:"last"`               // time of the newest record
	Heard     int64               `json:"heard"`              // when the newest record arrived

	stalls int
	hosts  map[string]int // processes by host
}

// NewBook makes an empty book.
func NewBook(l Limits) *Book { return &Book{limits: l, jobs: map[string]*Job{}} }

// Len is the number of stalls.
func (b *Book) Len() int { return b.stalls }

// Evicted counts the stalls that went because of a limit.
func (b *Book) Evicted() uint64 { return b.evicted }

// Job returns a job by its name, nil for none.
func (b *Book) Job(name string) *Job { return b.jobs[name] }

// Jobs are all jobs in the order of their names.
func (b *Book) Jobs() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		for _, name := range slices.Sorted(maps.Keys(b.jobs)) {
			if !yield(b.jobs[name]) {
				return
			}
		}
	}
}

// Take enters a record that arrived then and returns its job. An end makes no
// room for itself: nil says that its job is not known and that the book is full.
func (b *Book) Take(r *Record, heard int64) *Job {
	j := b.jobs[r.Job]
	if j == nil {
		if r.Ended() && len(b.jobs) >= b.limits.Jobs {
			return nil
		}
		j = &Job{Name: r.Job, ID: r.JobID, Domain: r.Domain, Processes: map[string]*Process{}, hosts: map[string]int{}}
		b.jobs[r.Job] = j
	}
	b.stalls += j.take(r, heard)
	for b.stalls > b.limits.Stalls || len(b.jobs) > b.limits.Jobs {
		b.evict(j)
	}
	return j
}

// evict forgets the job that was quiet for longest, but not mine. When mine is the
// only one, its oldest stalls go.
func (b *Book) evict(mine *Job) {
	var oldest *Job
	for _, j := range b.jobs {
		if j != mine && (oldest == nil || cmp.Or(cmp.Compare(j.Heard, oldest.Heard), cmp.Compare(j.Name, oldest.Name)) < 0) {
			oldest = j
		}
	}
	before := b.stalls
	if oldest != nil {
		b.Forget(oldest)
	} else {
		b.dropOldest(mine, max(b.limits.Stalls/8, 1))
	}
	b.evicted += uint64(max(before-b.stalls, 1))
}

// dropOldest forgets the n stalls that were not reported for longest.
func (b *Book) dropOldest(j *Job, n int) {
	type place struct {
		p  *Process
		id string
	}
	var all []place
	for _, p := range j.Processes {
		for id := range p.Stalls {
			all = append(all, place{p, id})
		}
	}
	slices.SortFunc(all, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.p.Stalls[x.id].Last, y.p.Stalls[y.id].Last), cmp.Compare(x.p.Host, y.p.Host), cmp.Compare(x.p.PID, y.p.PID), cmp.Compare(x.id, y.id))
	})
	gone := map[*Stall]bool{}
	for _, one := range all[:min(n, len(all))] {
		gone[one.p.Stalls[one.id]] = true
	}
	b.Drop(j, func(s *Stall) bool { return gone[s] })
}

// Drop forgets stalls of a job, and the processes that have none left. A job
// without a stall stays until it is forgotten.
func (b *Book) Drop(j *Job, which func(*Stall) bool) {
	for key, p := range j.Processes {
		before := len(p.Stalls)
		maps.DeleteFunc(p.Stalls, func(_ string, s *Stall) bool { return which(s) })
		gone := before - len(p.Stalls)
		j.stalls -= gone
		b.stalls -= gone
		if len(p.Stalls) > 0 {
			continue
		}
		delete(j.Processes, key)
		if j.hosts[p.Host]--; j.hosts[p.Host] == 0 {
			delete(j.hosts, p.Host)
		}
	}
}

// Forget drops a job.
func (b *Book) Forget(j *Job) {
	b.stalls -= j.stalls
	delete(b.jobs, j.Name)
}

// Expire forgets the stalls that were not heard of since then, ended or not: one
// that lasts is repeated.
func (b *Book) Expire(since int64) {
	for _, j := range b.jobs {
		b.Drop(j, func(s *Stall) bool { return s.Heard < since })
		if j.stalls == 0 {
			b.Forget(j)
		}
	}
}

// At is what the stall of a record says of a moment, as far as it is known.
func (b *Book) At(r *Record, t int64) Moment {
	j := b.jobs[r.Job]
	if j == nil {
		return Moment{}
	}
	p := j.Processes[ProcessKey(r.Host, r.PID)]
	if p == nil {
		return Moment{}
	}
	return p.momentOf(p.Stalls[r.ID], t)
}

// Len is the number of stalls of the job.
func (j *Job) Len() int { return j.stalls }

// On reports whether a process of the job runs on that host.
func (j *Job) On(host string) bool { return j.hosts[host] > 0 }

// Stalls are the stalls of the job, in no order.
func (j *Job) Stalls() iter.Seq[*Stall] {
	return func(yield func(*Stall) bool) {
		for _, p := range j.Processes {
			for _, s := range p.Stalls {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// take enters a record and returns by how many the stalls have grown.
func (j *Job) take(r *Record, heard int64) int {
	j.Last, j.Heard = max(j.Last, r.Time), max(j.Heard, heard)
	if r.World > 0 && (r.Time > j.WorldAt || r.Time == j.WorldAt && r.World > j.World) {
		j.World, j.WorldAt = r.World, r.Time
	}
	key := ProcessKey(r.Host, r.PID)
	p := j.Processes[key]
	if p == nil {
		p = &Process{Stalls: map[string]*Stall{}}
		j.Processes[key] = p
		j.hosts[r.Host]++
	}
	p.take(r)
	s := r.Stall
	s.Heard, s.Process = heard, key
	if known := p.Stalls[r.ID]; known != nil {
		known.merge(&s)
		return 0
	}
	p.Stalls[r.ID] = &s
	j.stalls++
	return 1
}

// MarshalJSON writes the jobs; equal books give equal bytes.
func (b *Book) MarshalJSON() ([]byte, error) { return json.Marshal(b.jobs) }

var errBook = errors.New("not a book of socket stalls")

// UnmarshalJSON takes the place of what the book holds. What does not fit, or is
// beyond the limits, is refused.
func (b *Book) UnmarshalJSON(data []byte) error {
	jobs, stalls := map[string]*Job{}, 0
	if err := json.Unmarshal(data, &jobs); err != nil {
		return fmt.Errorf("read socket stalls: %w", err)
	}
	for name, j := range jobs {
		if j == nil || j.Name != name || !j.restore() {
			return errBook
		}
		stalls += j.stalls
	}
	if stalls > b.limits.Stalls || len(jobs) > b.limits.Jobs {
		return errBook
	}
	if jobs == nil {
		jobs = map[string]*Job{}
	}
	b.jobs, b.stalls = jobs, stalls
	return nil
}

// restore works out what is not written down; false when parts do not fit.
func (j *Job) restore() bool {
	if j.Processes == nil {
		return false
	}
	j.hosts = map[string]int{}
	for key, p := range j.Processes {
		if p == nil || p.Stalls == nil || key != ProcessKey(p.Host, p.PID) {
			return false
		}
		j.hosts[p.Host]++
		for _, s := range p.Stalls {
			if s == nil {
				return false
			}
			s.Process = key
		}
		j.stalls += len(p.Stalls)
	}
	return true
}
