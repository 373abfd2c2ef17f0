package ncclsocketstall

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// job is what is known of the stalls of one job.
type job struct {
	Name   string            `json:"name"`
	Stalls map[string]*stall `json:"stalls"` // by id; ended ones too, while their records may still come
	Procs  map[string]*proc  `json:"procs"`  // by host and pid, while they have a stall
	Last   int64             `json:"last"`   // time of the newest record
	Ended  int64             `json:"ended"`  // of the newest end
	Thaw   int64             `json:"thaw"`   // when the first stall ended since the job was judged: the others may follow
	After  int64             `json:"after"`  // end of the last episode that was told of
	Told   *told             `json:"told"`   // nil: nothing is being told

	Changed bool  `json:"changed"` // since the last decision
	Decided int64 `json:"decided"` // when that was
	Wake    int64 `json:"wake"`    // when time alone may change it, 0 never

	hosts map[string]int // of its processes
}

// told is the finding that stands.
type told struct {
	Text string `json:"text"` // all that it says
	Time int64  `json:"time"`
	Last int64  `json:"last"`
	At   int64  `json:"at"` // when it was last told
}

func newJob(name string) *job {
	return &job{Name: name, Stalls: map[string]*stall{}, Procs: map[string]*proc{}, hosts: map[string]int{}}
}

// take enters a record and returns by how many the stalls have grown. What it
// leaves does not depend on the order in which records come.
func (j *job) take(in *input) int {
	j.Changed = true
	j.Last = max(j.Last, in.time)
	if in.ended {
		in.stall.Ended = in.time
		j.Ended = max(j.Ended, in.time)
		if j.Thaw == 0 {
			j.Thaw = in.time
		}
	}
	s := j.Stalls[in.id]
	if s != nil {
		s.merge(&in.stall)
		j.Procs[s.Proc].merge(&in.proc)
		return 0
	}
	j.Stalls[in.id] = &in.stall
	j.own(&in.stall, &in.proc)
	return 1
}

// own notes that s is a stall of p.
func (j *job) own(s *stall, p *proc) {
	known := j.Procs[s.Proc]
	if known == nil {
		known = p
		j.Procs[s.Proc] = p
		j.hosts[p.Host]++
	} else {
		known.merge(p)
	}
	known.Stalls++
}

// drop forgets a stall, and its process with the last of them.
func (j *job) drop(id string) {
	s := j.Stalls[id]
	delete(j.Stalls, id)
	p := j.Procs[s.Proc]
	if p.Stalls--; p.Stalls == 0 {
		delete(j.Procs, s.Proc)
		if j.hosts[p.Host]--; j.hosts[p.Host] == 0 {
			delete(j.hosts, p.Host)
		}
	}
}

// merge takes what o, a record of the same stall, knows better.
func (s *stall) merge(o *stall) {
	if o.Last > s.Last && o.Ended == 0 {
		s.Cause, s.Kind, s.Error, s.Unread = o.Cause, o.Kind, o.Error, o.Unread
	}
	if o.First < s.First && o.Ended == 0 || s.Ended != 0 && s.First == s.Ended {
		s.First, s.Sent, s.Received = o.First, o.Sent, o.Received
	}
	s.Onset = min(s.Onset, o.Onset)
	s.Last, s.Ended = max(s.Last, o.Last), max(s.Ended, o.Ended)
}

// again is by how much two reports of one moment may differ: ages are measured
// in ticks of the kernel's clock.
const again = int64(50 * time.Millisecond)

// merge takes from o what is newer of state and older of silence: silence is as
// the first snapshot saw it, in which all ranks of the host compare exactly,
// unless data has been sent since. The names of its pod may be known later.
func (p *proc) merge(o *proc) {
	p.Namespace, p.PodName, p.Workload = cmp.Or(p.Namespace, o.Namespace), cmp.Or(p.PodName, o.PodName), cmp.Or(p.Workload, o.Workload)
	if o.Last > p.Last {
		p.Last, p.State = o.Last, cmp.Or(o.State, p.State)
		p.World = max(p.World, o.World)
	}
	switch {
	case o.Sent > p.Sent+again, o.Sent >= p.Sent-again && o.First < p.First:
		p.First, p.Sent, p.Received, p.MainCPU = o.First, o.Sent, o.Received, o.MainCPU
	}
}

// pod is all that is known of the pod of p; nobody has seen a nil p.
func (p *proc) pod() string {
	if p == nil {
		return ""
	}
	return strings.Join([]string{p.Pod, p.Namespace, p.PodName, p.Workload}, " ")
}

// active reports whether s lasts, as far as its job is heard of.
func (j *job) active(s *stall) bool { return s.Ended == 0 && s.Last >= j.Last-fading }

// A job with more stalls than small is judged again after perStall for each: five
// times as long as it takes.
const (
	small    = 1_000
	perStall = int64(5 * time.Microsecond)
)

// due is when the job is to be judged, 0 when nothing has changed. A large job
// is judged more rarely, so that a burst of its records is judged a few times,
// not once for each.
func (j *job) due() int64 {
	if j.Changed {
		at := max(j.Decided+int64(max(len(j.Stalls)-small, 0))*perStall, 1)
		if j.Wake == 0 || at < j.Wake {
			return at
		}
	}
	return j.Wake
}

// decide judges the job at that time.
func (j *job) decide(now int64, d *detector) []rule.Finding {
	j.Changed, j.Decided, j.Wake = false, now, 0
	j.forget(now, d.lateness)
	g := newGraph(j)
	switch {
	case now-j.Last > lost:
		j.Told, j.Thaw = nil, 0
		j.forgetAll()
		return nil
	case len(g.active) == 0:
		return j.end(now, d.lateness)
	case now < j.thawed(g, d.lateness):
		j.Wake = j.thawed(g, d.lateness)
		return nil
	}
	j.Thaw = 0
	c, wait, stands := g.conclude(now, &d.facts)
	j.Wake = earliest(wait, j.Last+lost+1)
	switch {
	case stands:
		return nil
	case c == nil:
		return j.takeBack()
	}
	c.aborts = !d.facts.diedIn(j.Name, g.first)
	return j.tell(g, c, now)
}

// thawed is until when nothing is concluded, because a stall has ended: the
// others may end too, each in the next snapshot of its node. What was told does
// not give way to what is left over while their records may be late.
func (j *job) thawed(g *graph, lateness int64) int64 {
	over := func(s *stall) bool { return s.First <= j.Ended && s.Last <= j.Ended+wane }
	switch {
	case j.Thaw == 0:
		return 0
	case j.Told != nil && slices.ContainsFunc(g.active, over):
		return j.Thaw + wane + lateness
	default:
		return j.Thaw + wane
	}
}

// tell gives out c, if it says something new or was not told for long.
func (j *job) tell(g *graph, c *conclusion, now int64) []rule.Finding {
	f := c.finding(g)
	f.Time = max(f.Time, j.After+1)
	f.Last = max(j.Last, f.Time)
	text := c.text() + " " + j.Procs[c.Culprit].pod()
	if j.Told != nil && j.Told.Text == text && j.Told.Time == f.Time && now < j.Told.At+refresh {
		if f.Last > j.Told.Last {
			j.Wake = earliest(j.Wake, j.Told.At+refresh)
		}
		return nil
	}
	j.Told = &told{Text: text, Time: f.Time, Last: f.Last, At: now}
	return []rule.Finding{f}
}

// takeBack withdraws what was told and does not hold with what is known now.
func (j *job) takeBack() []rule.Finding {
	if j.Told == nil {
		return nil
	}
	f := rule.Finding{
		Event: eventCulprit, ID: j.Name, Gone: true, Time: j.Told.Time, Last: j.Last,
		Attributes: map[string]any{attrKey: j.Name},
	}
	j.Told = nil
	return []rule.Finding{f}
}

// end says that the stall is over.
func (j *job) end(now, lateness int64) []rule.Finding {
	j.Thaw = 0
	if len(j.Stalls) > 0 {
		j.Wake = max(j.Last+lateness+wane, now) + 1
	}
	if j.Told == nil {
		return nil
	}
	at := max(j.Ended, j.Told.Time)
	j.Told, j.After = nil, at
	return []rule.Finding{{Event: eventEnd, ID: j.Name, Time: at, Last: at, Attributes: map[string]any{attrKey: j.Name}}}
}

// forget drops ended stalls of which no record can come any more.
func (j *job) forget(now, lateness int64) {
	for id, s := range j.Stalls {
		if s.Ended != 0 && s.Ended+lateness+wane < now {
			j.drop(id)
		}
	}
}

func (j *job) forgetAll() {
	for id := range j.Stalls {
		j.drop(id)
	}
}

// dropOldest forgets the n stalls that were not reported for longest.
func (j *job) dropOldest(n int) int {
	ids := slices.Sorted(maps.Keys(j.Stalls))
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(j.Stalls[a].Last, j.Stalls[b].Last) })
	for _, id := range ids[:min(n, len(ids))] {
		j.drop(id)
	}
	return min(n, len(ids))
}

// earliest is the smaller of two moments that is not 0.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
