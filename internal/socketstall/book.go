package socketstall

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// Limits bound a book.
type Limits struct {
	Jobs   int // at once
	Stalls int // at once, of all jobs
}

// DefaultLimits are enough for 16,384 ranks with six peers in both directions,
// which are 196,608 stalls.
var DefaultLimits = Limits{Jobs: 1_024, Stalls: 262_144}

// Book holds the newest state of every stall, by job and process. It is bounded, and
// the room is shared (internal/fairlru): the process that was quiet for longest of the
// host, then of the domain, then of the job that hold most gives way, and so does the
// job of the host and domain that have most jobs. The same records give the same book.
// As JSON it is the same bytes for the same content.
type Book struct {
	limits    Limits
	jobs      map[string]*Job
	order     fairlru.List[*Job]
	processes fairlru.List[*Process] // each as large as its stalls
	evicted   uint64
}

// Job is the stalls of one job.
type Job struct {
	Name      string              `json:"name"`
	ID        string              `json:"id,omitempty"` // "" of ranks without a job id
	Domain    string              `json:"domain,omitempty"`
	Run       string              `json:"run,omitempty"` // start of the job, "" when not known
	Processes map[string]*Process `json:"processes"`     // by ProcessKey, while they have a stall
	World     int                 `json:"world,omitempty"`
	WorldAt   int64               `json:"world_at,omitempty"` // time of the record that says so
	Last      int64               `json:"last"`               // time of the newest record
	Heard     int64               `json:"heard"`              // when the newest record arrived
	CutAt     int64               `json:"cut,omitempty"`      // time of the newest record when stalls of it were last given up for want of room

	stalls  int
	hosts   map[string]int // processes by host
	element *fairlru.Element[*Job]
}

// NewBook makes an empty book.
func NewBook(l Limits) *Book { return &Book{limits: l, jobs: map[string]*Job{}} }

// Len is the number of stalls.
func (b *Book) Len() int { return b.processes.Size() }

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
		j = &Job{Name: r.Job, ID: r.JobID, Domain: r.Domain, Run: r.Of, Processes: map[string]*Process{}}
		b.enter(j, r.Host)
	}
	b.order.Touch(j.element, fairlru.Some)
	p := j.take(r, heard)
	b.count(j, p)
	b.processes.Touch(p.element, fairlru.Some)
	for len(b.jobs) > b.limits.Jobs {
		victim, _ := b.order.Victim()
		b.evicted += uint64(max(victim.Value.stalls, 1)) //nolint:gosec // never below zero
		b.Forget(victim.Value)
	}
	for b.Len() > b.limits.Stalls {
		victim, _ := b.processes.Victim()
		victim.Value.job.CutAt = max(victim.Value.job.Last, 1)
		b.evicted += b.shorten(victim.Value)
	}
	return j
}

// enter counts a job, which that host began, and what it holds.
func (b *Book) enter(j *Job, host string) {
	b.jobs[j.Name] = j
	j.element = b.order.Add(j, fairlru.Some, host, j.Domain)
	j.hosts = map[string]int{}
	for _, p := range byLast(j.Processes) {
		b.count(j, p)
	}
}

// count counts a process as large as it is now.
func (b *Book) count(j *Job, p *Process) {
	if p.element == nil {
		p.job = j
		p.element = b.processes.Add(p, fairlru.Some, p.Host, j.Domain, j.Name)
		j.hosts[p.Host]++
	}
	b.processes.Resize(p.element, len(p.Stalls))
	j.stalls += len(p.Stalls) - p.counted
	p.counted = len(p.Stalls)
}

// byLast are processes in the order in which they were last heard of.
func byLast(processes map[string]*Process) []*Process {
	return slices.SortedFunc(maps.Values(processes), func(a, b *Process) int {
		return cmp.Or(cmp.Compare(a.Last, b.Last), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID))
	})
}

// shorten forgets the eighth of the stalls of a process that were not reported for
// longest, and returns how many they are.
func (b *Book) shorten(p *Process) uint64 {
	ids := slices.SortedFunc(maps.Keys(p.Stalls), func(x, y string) int {
		return cmp.Or(cmp.Compare(p.Stalls[x].Last, p.Stalls[y].Last), cmp.Compare(x, y))
	})
	gone := ids[:max(len(ids)/8, 1)]
	for _, id := range gone {
		delete(p.Stalls, id)
	}
	b.settle(p)
	return uint64(len(gone))
}

// settle counts a process that has lost stalls. One without any leaves.
func (b *Book) settle(p *Process) {
	j := p.job
	j.stalls += len(p.Stalls) - p.counted
	p.counted = len(p.Stalls)
	if len(p.Stalls) > 0 {
		b.processes.Resize(p.element, len(p.Stalls))
		return
	}
	b.processes.Remove(p.element)
	delete(j.Processes, ProcessKey(p.Host, p.PID))
	if j.hosts[p.Host]--; j.hosts[p.Host] == 0 {
		delete(j.hosts, p.Host)
	}
}

// Drop forgets stalls of a job, and the processes that have none left. A job
// without a stall stays until it is forgotten.
func (b *Book) Drop(j *Job, which func(*Stall) bool) {
	for _, p := range j.Processes {
		maps.DeleteFunc(p.Stalls, func(_ string, s *Stall) bool { return which(s) })
		b.settle(p)
	}
}

// Forget drops a job.
func (b *Book) Forget(j *Job) {
	for _, p := range j.Processes {
		b.processes.Remove(p.element)
	}
	b.order.Remove(j.element)
	delete(b.jobs, j.Name)
}

// Join makes what is known of one job that of another: both are one.
func (b *Book) Join(from, to *Job) {
	for _, p := range byLast(from.Processes) {
		key := ProcessKey(p.Host, p.PID)
		if known := to.Processes[key]; known != nil {
			for id, s := range p.Stalls {
				if known.Stalls[id] == nil {
					known.Stalls[id] = s
				}
			}
			b.processes.Remove(p.element)
			p = known
		} else {
			b.processes.Remove(p.element)
			p.element, p.counted, to.Processes[key] = nil, 0, p
		}
		b.count(to, p)
	}
	to.Last, to.Heard = max(to.Last, from.Last), max(to.Heard, from.Heard)
	from.Processes = nil
	b.Forget(from)
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

// Cut reports whether stalls of the job were given up for want of room that would be open: who waits
// for whom is known in part.
func (j *Job) Cut() bool { return j.CutAt != 0 && j.CutAt >= j.Last-int64(Fading) }

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

// take enters a record and returns its process.
func (j *Job) take(r *Record, heard int64) *Process {
	j.Last, j.Heard = max(j.Last, r.Time), max(j.Heard, heard)
	if r.World > 0 && (r.Time > j.WorldAt || r.Time == j.WorldAt && r.World > j.World) {
		j.World, j.WorldAt = r.World, r.Time
	}
	key := ProcessKey(r.Host, r.PID)
	p := j.Processes[key]
	if p == nil {
		p = &Process{Stalls: map[string]*Stall{}}
		j.Processes[key] = p
	}
	p.take(r)
	p.Run = cmp.Or(r.Run, p.Run)
	s := r.Stall
	s.Heard, s.Process = heard, key
	if known := p.Stalls[r.ID]; known != nil {
		known.merge(&s)
	} else {
		p.Stalls[r.ID] = &s
	}
	return p
}

// Copy returns a book that is only read: its JSON is that of b now, whatever b takes later.
func (b *Book) Copy() *Book {
	jobs := make(map[string]*Job, len(b.jobs))
	for name, j := range b.jobs {
		job := *j
		job.Processes = make(map[string]*Process, len(j.Processes))
		for key, p := range j.Processes {
			job.Processes[key] = p.copied()
		}
		jobs[name] = &job
	}
	return &Book{limits: b.limits, jobs: jobs}
}

func (p *Process) copied() *Process {
	process, stalls := *p, make([]Stall, 0, len(p.Stalls))
	process.Stalls = make(map[string]*Stall, len(p.Stalls))
	for id, stall := range p.Stalls {
		stalls = append(stalls, *stall)
		process.Stalls[id] = &stalls[len(stalls)-1]
	}
	return &process
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
		if j == nil || j.Name != name || !j.sound() {
			return errBook
		}
		for _, p := range j.Processes {
			stalls += len(p.Stalls)
		}
	}
	if stalls > b.limits.Stalls || len(jobs) > b.limits.Jobs {
		return errBook
	}
	b.jobs, b.order, b.processes = map[string]*Job{}, fairlru.List[*Job]{}, fairlru.List[*Process]{}
	for _, j := range slices.SortedFunc(maps.Values(jobs), func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.Heard, b.Heard), cmp.Compare(a.Name, b.Name))
	}) {
		host := ""
		for _, p := range byLast(j.Processes) {
			host = cmp.Or(host, p.Host)
		}
		b.enter(j, host)
	}
	return nil
}

// sound reports whether the parts of a saved job fit; it tells its stalls whose they are.
func (j *Job) sound() bool {
	if j.Processes == nil {
		return false
	}
	for key, p := range j.Processes {
		if p == nil || len(p.Stalls) == 0 || key != ProcessKey(p.Host, p.PID) {
			return false
		}
		for _, s := range p.Stalls {
			if s == nil {
				return false
			}
			s.Process = key
		}
	}
	return true
}
