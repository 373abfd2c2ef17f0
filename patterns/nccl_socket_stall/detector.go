// Package ncclsocketstall finds the rank that a stalled job waits for, from the
// socket stalls of all its ranks that one engine sees.
package ncclsocketstall

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The events of the detector's findings.
const (
	eventCulprit = rule.FindingPrefix + "nccl_socket_stall"
	eventEnd     = rule.FindingPrefix + "nccl_socket_stall.end"
)

// thresholds of the detector.
type thresholds struct {
	// settle is how long records of other ranks are waited for while the graph has
	// open ends: every agent takes a snapshot a second.
	settle time.Duration
	// late is how long at most the records of other hosts are waited for where the first of a stall came late,
	// as after a gateway was away: as long as those were late. An agent tries again 7.5 s after a try at
	// the latest, and one takes up to 5 s.
	late time.Duration
	// wane is how long a conclusion is kept after a stall ended: the others of the
	// job end with it, each in the next snapshot of its node. Records of that may be
	// late: one that was told is kept for the lateness more, unless all others are
	// reported after it.
	wane time.Duration
	// lost is after how long without any record a job is forgotten.
	lost time.Duration
	// refresh is how often an unchanged finding is told again: its end grows.
	refresh time.Duration
	// mounts is how long the probe of FUSE is waited for where the rank waits for such a mount:
	// a thread blocks there after its rank fell silent, where others had work for the rank. Its
	// threshold and its scan_interval, 1 s each, and the way here.
	mounts time.Duration
	// stopped is how long after a rank was asked to end with its job the rest is killed by the same
	// stop, as rank_exit has it.
	stopped time.Duration
	// keepFacts is how long what the kernel said may explain a stall.
	keepFacts time.Duration
	// unwatched is how long it is no error that ranks wait for a process that no agent watches.
	unwatched time.Duration
	// outside is how long it is none that they wait for one that is no rank.
	outside time.Duration
	// asleep is how long all ranks of a job may sleep until a time comes.
	asleep time.Duration

	// Clock errors between hosts. A pair of idle sockets tells the difference of
	// their clocks: the last byte that one sent is the last that the other received.
	// What is left is the way through the network and a tick of the kernel's clock
	// on both sides. Without such a pair NTP must do.
	errorWay time.Duration // the way, beside the ticks of both
	errorNTP time.Duration

	limits   socketstall.Limits
	maxFacts int
}

// fixed are the thresholds that follow from the receiver and the kernel; the others are
// parameters of pattern.yaml.
var fixed = thresholds{
	late: 12500 * time.Millisecond, wane: 2500 * time.Millisecond, mounts: 2500 * time.Millisecond, lost: 10 * time.Minute, refresh: 10 * time.Second,
	errorWay: 2 * time.Millisecond,
	limits:   socketstall.DefaultLimits, maxFacts: 16_384,
}

// Detector describes the detector for the library.
func Detector() rule.Detector {
	return rule.Detector{
		Name: "nccl_socket_stall", Trust: verdict.Proven,
		Logs: slices.Concat([]string{socketstall.Event, socketstall.EventEnd, socketstall.EventWatched}, factEvents),
		Ends: []string{socketstall.EventEnd, socketstall.EventWatched},
		Findings: map[string][]string{
			eventCulprit: {socketstall.Event},
			eventEnd:     {socketstall.Event},
		},
		Attributes: slices.Concat(socketstall.Attributes, factAttributes),
		Parameters: map[string]rule.ParameterType{
			"settle": rule.DurationParameter, "facts": rule.DurationParameter, "clock_error": rule.DurationParameter, "stopped": rule.DurationParameter,
			"unwatched": rule.DurationParameter, "outside": rule.DurationParameter, "asleep": rule.DurationParameter,
		},
		New: func(l rule.Limits) rule.Algorithm {
			t := fixed
			t.settle, t.keepFacts = time.Duration(l.Values.Duration("settle")), time.Duration(l.Values.Duration("facts"))
			t.stopped, t.unwatched = time.Duration(l.Values.Duration("stopped")), time.Duration(l.Values.Duration("unwatched"))
			t.asleep, t.outside = time.Duration(l.Values.Duration("asleep")), time.Duration(l.Values.Duration("outside"))
			t.errorNTP = time.Duration(l.Values.Duration("clock_error"))
			return &detector{thresholds: &t, lateness: l.Lateness, book: socketstall.NewBook(t.limits), jobs: map[string]*job{}, facts: newFacts()}
		},
	}
}

// detector is the state: the stalls of each job, what was concluded from them,
// and what the kernel said of processes lately.
type detector struct {
	*thresholds
	lateness int64
	book     *socketstall.Book
	jobs     map[string]*job // those in the book, and those that a finding is told of
	facts    facts
	evicted  uint64 // facts
}

// Observe takes in one record.
func (d *detector) Observe(r *rule.Record) bool {
	if r.Name == socketstall.Event || r.Name == socketstall.EventEnd {
		return d.observeStall(r)
	}
	if r.Name == socketstall.EventWatched {
		return d.observeWatched(r)
	}
	if !d.note(r) {
		return false
	}
	d.reconsider(r)
	return true
}

// note takes in a fact, and reports whether r is one.
func (d *detector) note(r *rule.Record) bool {
	if !d.facts.observe(r) {
		return false
	}
	d.evicted += d.facts.trim(d.maxFacts)
	return true
}

// reconsider queues the jobs of a fact's host for a new judgement, and the job that it is about: of that
// nothing may stand still on the host where all of its ranks have died.
func (d *detector) reconsider(r *rule.Record) {
	host := rule.Text(r.Resource, "host.name")
	about := socketstall.RunName(socketstall.JobName(rule.Job(r.Attributes), rule.Text(r.Attributes, rule.AttributeJobDomain)), cmp.Or(r.With, r.Run))
	for name, j := range d.jobs {
		if name == about || slices.Contains(j.One, about) || j.stalls.On(host) {
			j.Changed = true
		}
	}
}

func (d *detector) observeStall(r *rule.Record) bool {
	record, ok := socketstall.Parse(r.Name, r.Time, r.Resource, r.Attributes)
	if !ok {
		return false
	}
	beside := d.ofRun(r, &record)
	evicted := d.book.Evicted()
	stalls := d.book.Take(&record, r.Time)
	if stalls == nil {
		return false
	}
	if d.book.Evicted() != evicted {
		maps.DeleteFunc(d.jobs, func(name string, _ *job) bool { return d.book.Job(name) == nil })
	}
	j := d.jobs[stalls.Name]
	if j == nil {
		j = &job{}
		d.jobs[stalls.Name] = j
	}
	j.stalls = stalls
	d.hears(j, r)
	if j.take(&record, r.Now); stalls.Name != beside {
		j.Beside = cmp.Or(beside, j.Beside)
	}
	return true
}

// observeWatched takes in that data of a job moves on a host: what stood there has ended, though nobody
// has seen that.
func (d *detector) observeWatched(r *rule.Record) bool {
	record, ok := socketstall.Parse(r.Name, r.Time, r.Resource, r.Attributes)
	if !ok {
		return false
	}
	d.ofRun(r, &record)
	d.note(r)
	j := d.jobs[record.Job]
	if j == nil || !j.stalls.On(record.Host) || j.Watched[record.Host] >= r.Time {
		return false
	}
	j.Watched = with(j.Watched, record.Host, r.Time)
	j.Moving = with(j.Moving, record.Host, record.Moving)
	if j.Changed = true; record.Moving != 0 {
		j.ends(r.Time, r.Now)
	}
	return true
}

// hears notes that the first records of a stall come late: those of other hosts may be as late.
func (d *detector) hears(j *job, r *rule.Record) {
	if lag := r.Now - r.Time; j.Onset == 0 && lag > int64(d.settle) {
		j.Late = r.Now + min(lag, int64(d.late))
	}
}

// with is m, which may be nil, with one entry set.
func with(m map[string]int64, name string, value int64) map[string]int64 {
	if m == nil {
		m = map[string]int64{}
	}
	m[name] = value
	return m
}

// Due is the earliest moment at which a job has something to decide.
func (d *detector) Due() int64 {
	due := int64(0)
	for _, j := range d.jobs {
		due = earliest(due, j.due())
	}
	return due
}

// Decide judges the jobs that are due.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	d.facts.expire(now-int64(d.keepFacts), d.needs)
	findings = append(findings, d.join()...)
	for _, name := range slices.Sorted(maps.Keys(d.jobs)) {
		j := d.jobs[name]
		if at := j.due(); at == 0 || at > now {
			continue
		}
		findings = append(findings, d.judge(j, now)...)
		if j.stalls.Len() == 0 && j.Told == nil {
			d.book.Forget(j.stalls)
			delete(d.jobs, name)
		}
	}
	return findings
}

// needs reports whether a fact may explain a stall that lasts: why ranks wait stays known for as long as they do.
func (d *detector) needs(f *fact) bool {
	since := f.Last + int64(d.keepFacts)
	if d.jobs[f.Job].lastsSince(since) || d.jobs[f.Beside].lastsSince(since) {
		return true
	}
	for _, j := range d.jobs {
		if f.JobID == "" && j.lastsSince(since) && j.stalls.On(f.Host) {
			return true
		}
	}
	return false
}

// Evicted counts stalls and facts that were forgotten because of the caps.
func (d *detector) Evicted() uint64 { return d.evicted + d.book.Evicted() }
