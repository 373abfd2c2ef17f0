// Package straggler finds the rank of a job that keeps its peers waiting: from how long
// each rank computes before it enters the collective of a step, or from when each rank
// calls the same collectives.
package straggler

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// metricCompute is a gauge in seconds, one point per rank and step: from the end of
// the last collective to the entry into the next. The whole step takes every rank
// equally long, since all wait for the slowest; this part does not.
const metricCompute = "gen_ai.training.step.compute.duration"

const (
	eventSlow = rule.FindingPrefix + "straggler"
	eventEnd  = rule.FindingPrefix + "straggler.end"
)

// robust is how many times smaller than a standard deviation the median absolute deviation
// is (Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, 1993).
const robust = 1.4826

// limits are the parameters of pattern.yaml: a rank is behind in a step when it takes so
// much longer than the median and lies outside of the spread of its peers.
type limits struct {
	excess, spread float64
	steps          int // in a row, until it is told and until it is released
	samples        int // arrivals that count
	lateBy         float64
	lasting        int64
	least          int // ranks that have a median worth the name
	mostBehind     float64
}

// Caps: values of all steps not judged yet, and jobs.
const (
	maxValues = 1 << 20
	maxJobs   = 1024
)

// Detector describes the detector for the library.
func Detector() rule.Detector {
	return rule.Detector{
		Name:     "straggler",
		Trust:    verdict.Foreign, // the training code alone can say how long it computes
		Metrics:  []string{metricCompute},
		Logs:     []string{eventArrivals},
		Findings: map[string][]string{eventSlow: {metricCompute}, eventEnd: {metricCompute}, eventLate: {eventArrivals}, eventInTime: {eventArrivals}},
		Attributes: []string{
			rule.AttributeJob, rule.AttributeJobDomain, "gen_ai.training.rank", "gen_ai.training.step", "gen_ai.training.world_size", "host.name", "k8s.node.name", "gpu.id", "process.pid",
			"nccl.call.arrival_ages_ns", "nccl.call.arrival_numbers", "nccl.call.clock_error_ns", "nccl.call.comm", "nccl.call.comm_rank", "nccl.call.comm_size", "nccl.call.pause_ns", "nccl.call.peer_comms",
		},
		Parameters: map[string]rule.ParameterType{
			"excess": rule.NumberParameter, "spread": rule.NumberParameter, "steps": rule.IntegerParameter,
			"least_ranks": rule.IntegerParameter, "most_behind": rule.NumberParameter,
			"samples": rule.IntegerParameter, "late": rule.DurationParameter, "lasting": rule.DurationParameter,
		},
		New: func(l rule.Limits) rule.Algorithm {
			v := l.Values
			d := &detector{lateness: l.Lateness, most: maxValues, limits: limits{
				excess: v.Number("excess"), spread: v.Number("spread"), steps: v.Integer("steps"),
				least: v.Integer("least_ranks"), mostBehind: v.Number("most_behind"),
				samples: v.Integer("samples"), lateBy: v.Number("late"), lasting: v.Duration("lasting"),
			}}
			d.arrivals = newArrivals(d.limits, l.Lateness)
			d.reset()
			return d
		},
	}
}

// detector is the state: the steps of each job that are not judged yet, and how
// many steps each rank has been behind.
type detector struct {
	limits
	lateness int64
	jobs     map[string]*job     // by domain, id and start
	order    *fairlru.List[*job] // by the host that began them
	values   *fairlru.List[*job] // the same, each as large as its values
	most     int                 // values
	evicted  uint64
	arrivals *arrivals
}

func (d *detector) reset() {
	d.jobs, d.order, d.values = map[string]*job{}, &fairlru.List[*job]{}, &fairlru.List[*job]{}
}

// job is one start of a training job: its id inside its domain. Who says no domain is in none of
// those that are known, so nobody's word is mixed with that of a job that is not his.
type job struct {
	Name   string          `json:"name"`
	Domain string          `json:"domain,omitempty"`
	Run    string          `json:"run,omitempty"`  // which start, "" when not known
	Host   string          `json:"host,omitempty"` // that began it
	World  int64           `json:"world"`          // ranks it says it has, 0 when unknown
	Steps  map[int64]*step `json:"steps"`
	Judged int64           `json:"judged"` // newest step judged; later words of it do not count
	Ranks  map[int64]*rank `json:"ranks"`  // those behind, or told to be
	Last   int64           `json:"last"`

	held            int // values
	inOrder, values *fairlru.Element[*job]
}

// step is one step whose ranks are being heard.
type step struct {
	First int64          `json:"first"` // event time of its first word
	Last  int64          `json:"last"`
	Took  map[int64]took `json:"took"` // by rank
}

// took is what one rank did in a step.
type took struct {
	Seconds float64 `json:"seconds"`
	Where   place   `json:"where"`
}

// place is where a rank runs.
type place struct {
	Host string `json:"host,omitempty"`
	Node string `json:"node,omitempty"`
	GPU  string `json:"gpu,omitempty"`
	PID  int64  `json:"pid,omitempty"`
}

// stamp says in a finding where its rank runs, and of which start of whose job it is.
func (p *place) stamp(f *rule.Finding, domain, run string) {
	f.Resource = map[string]any{"host.name": p.Host}
	if p.Node != "" {
		f.Resource["k8s.node.name"] = p.Node
	}
	for name, value := range map[string]string{rule.AttributeJobDomain: domain, rule.AttributeRun: run, "gpu.id": p.GPU} {
		if value != "" {
			f.Attributes[name] = value
		}
	}
	if p.PID != 0 {
		f.Attributes["process.pid"] = p.PID
	}
}

// rank is one that is behind.
type rank struct {
	Since  int64   `json:"since"`
	Behind int     `json:"behind"` // steps in a row
	OnTime int     `json:"on_time"`
	Told   bool    `json:"told"`
	Ratio  float64 `json:"ratio"` // of the last step behind
	Where  place   `json:"where"`
}

// Observe takes in one point, or one record of arrivals.
func (d *detector) Observe(r *rule.Record) bool {
	if r.Name == eventArrivals {
		return d.arrivals.observe(r)
	}
	number, okStep := rule.Integer(r.Attributes, "gen_ai.training.step")
	who, okRank := rule.Integer(r.Attributes, "gen_ai.training.rank")
	name, domain := r.JobInDomain()
	if !okStep || !okRank || who < 0 || name == "" || math.IsNaN(r.Number) || math.IsInf(r.Number, 0) || r.Number < 0 {
		return false
	}
	j := d.jobOf(domain, name, r)
	if number <= j.Judged {
		if r.Time <= j.Last+d.lateness {
			return false
		}
		j.Judged = number - 1 // started again from a checkpoint
	}
	if world, ok := rule.Integer(r.Attributes, "gen_ai.training.world_size"); ok {
		j.World = world
	}
	d.order.Touch(j.inOrder, fairlru.Some)
	d.count(j, j.hear(number, who, r))
	for len(d.jobs) > maxJobs {
		victim, _ := d.order.Victim()
		d.forget(victim.Value)
	}
	for d.held() > d.most {
		victim, _ := d.values.Victim()
		d.shorten(victim.Value)
	}
	return true
}

// jobOf returns the start of the job that a point is about. Ranks of the start before it ran
// elsewhere, at other steps. Steps of a start that was not known yet are those of the first
// that is.
func (d *detector) jobOf(domain, name string, r *rule.Record) *job {
	if j := d.jobs[key(domain, name, r.Run)]; j != nil {
		return j
	}
	j := d.jobs[key(domain, name, "")]
	if j == nil {
		j = &job{
			Name: name, Domain: domain, Run: r.Run, Host: rule.Text(r.Resource, "host.name"),
			Steps: map[int64]*step{}, Ranks: map[int64]*rank{}, Judged: math.MinInt64,
		}
		d.enter(j)
		return j
	}
	delete(d.jobs, j.key())
	j.Run = r.Run
	d.jobs[j.key()] = j
	return j
}

// hear notes a value, and returns how many more there are now.
func (j *job) hear(number, who int64, r *rule.Record) int {
	s := j.Steps[number]
	if s == nil {
		s = &step{First: r.Time, Took: map[int64]took{}}
		j.Steps[number] = s
	}
	before := len(s.Took)
	s.First, s.Last, j.Last = min(s.First, r.Time), max(s.Last, r.Time), max(j.Last, r.Time)
	if known, told := s.Took[who]; !told || r.Number > known.Seconds { // told twice: the longer one
		s.Took[who] = took{Seconds: r.Number, Where: placeOf(r)}
	}
	return len(s.Took) - before
}

func placeOf(r *rule.Record) place {
	pid, _ := rule.Integer(r.Attributes, "process.pid")
	return place{
		Host: rule.Text(r.Resource, "host.name"), Node: rule.Text(r.Resource, "k8s.node.name"),
		GPU: rule.Text(r.Attributes, "gpu.id"), PID: pid,
	}
}

// key tells jobs apart. A domain is the kernel's and a start the engine's: they have no NUL.
func key(domain, name, run string) string { return domain + "\x00" + run + "\x00" + name }

func (j *job) key() string { return key(j.Domain, j.Name, j.Run) }

func (d *detector) enter(j *job) {
	d.jobs[j.key()] = j
	j.inOrder = d.order.Add(j, fairlru.Some, j.Host, j.Domain)
	j.values = d.values.Add(j, fairlru.Some, j.Host, j.Domain, j.Name)
}

// count notes that a job has so many values more. Each job counts as one besides.
func (d *detector) count(j *job, more int) {
	j.held += more
	d.values.Resize(j.values, 1+j.held)
}

// held is the number of values.
func (d *detector) held() int { return d.values.Size() - d.values.Len() }

// forget drops a job: of the host, and there the domain, that has most of them, the one
// quiet for longest.
func (d *detector) forget(j *job) {
	d.order.Remove(j.inOrder)
	d.values.Remove(j.values)
	delete(d.jobs, j.key())
	d.evicted++
}

// shorten drops the oldest step of the job that has most values on the host that has most.
func (d *detector) shorten(j *job) {
	number := slices.Min(slices.Collect(maps.Keys(j.Steps)))
	d.drop(j, number)
	d.evicted++
}

func (d *detector) drop(j *job, number int64) {
	took := len(j.Steps[number].Took)
	delete(j.Steps, number)
	d.count(j, -took)
}

// ready is when the oldest step can be judged: once every rank was heard, or when
// no word of it can come any more.
func (j *job) ready(lateness int64) (number, at int64, ok bool) {
	for n, s := range j.Steps {
		if !ok || n < number {
			number, ok = n, true
			at = s.First + lateness + 1
			if j.World > 0 && int64(len(s.Took)) >= j.World {
				at = min(at, s.Last)
			}
		}
	}
	return number, at, ok
}

// Due is when the next step can be judged, or the next arrivals.
func (d *detector) Due() int64 {
	due := d.arrivals.due()
	for _, j := range d.jobs {
		if _, at, ok := j.ready(d.lateness); ok && (due == 0 || at < due) {
			due = max(at, 1)
		}
	}
	return due
}

// Decide judges the steps that are ready, in their order.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	for _, key := range slices.Sorted(maps.Keys(d.jobs)) {
		j := d.jobs[key]
		for {
			number, at, ok := j.ready(d.lateness)
			if !ok || at > now {
				break
			}
			findings = append(findings, d.judge(j, j.Steps[number])...)
			d.drop(j, number)
			j.Judged = number
		}
	}
	return append(findings, d.arrivals.decide(now)...)
}

// judge compares the ranks of a step with each other.
func (l limits) judge(j *job, s *step) []rule.Finding {
	limit, middle, ok := l.bound(s.Took)
	if !ok {
		return nil
	}
	var findings []rule.Finding
	for _, who := range slices.Sorted(maps.Keys(s.Took)) {
		of, r := s.Took[who], j.Ranks[who]
		switch {
		case of.Seconds > limit:
			if r == nil {
				r = &rank{Since: s.First}
				j.Ranks[who] = r
			}
			r.Behind, r.OnTime, r.Ratio, r.Where = r.Behind+1, 0, of.Seconds/middle, of.Where
			if r.Behind >= l.steps && !r.Told {
				r.Told = true
				findings = append(findings, j.finding(eventSlow, who, r, s))
			}
		case r != nil && !r.Told:
			delete(j.Ranks, who)
		case r != nil:
			r.Behind, r.OnTime = 0, r.OnTime+1
			if r.OnTime >= l.steps {
				findings = append(findings, j.finding(eventEnd, who, r, s))
				delete(j.Ranks, who)
			}
		}
	}
	return findings
}

// bound returns what a rank must exceed to be behind, and the median. False: too
// few ranks, or so many behind that the job is uneven by nature.
func (l limits) bound(ranks map[int64]took) (limit, middle float64, ok bool) {
	if len(ranks) < l.least {
		return 0, 0, false
	}
	values := make([]float64, 0, len(ranks))
	for _, of := range ranks {
		values = append(values, of.Seconds)
	}
	middle = median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - middle)
	}
	limit = middle + max(l.excess*middle, l.spread*robust*median(away))
	behind := 0
	for _, v := range values {
		if v > limit {
			behind++
		}
	}
	return limit, middle, middle > 0 && float64(behind) <= l.mostBehind*float64(len(values))
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

func (j *job) finding(event string, who int64, r *rank, s *step) rule.Finding {
	f := rule.Finding{
		Event: event, ID: fmt.Sprintf("straggler %q %s %d %d", j.Domain, j.Name, who, r.Since), Time: r.Since, Last: s.Last,
		Attributes: map[string]any{
			"gen_ai.training.job_id": j.Name, "gen_ai.training.rank": who,
			"straggler.ratio": fmt.Sprintf("%.1f", r.Ratio), "straggler.peers": int64(len(s.Took) - 1),
		},
	}
	if event == eventEnd {
		f.Time = s.Last
	}
	r.Where.stamp(&f, j.Domain, j.Run)
	return f
}

// Evicted counts jobs, steps and communicators that were forgotten because of the caps.
func (d *detector) Evicted() uint64 { return d.evicted + d.arrivals.evicted }
