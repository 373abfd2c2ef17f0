// Package silentdatacorruption finds evaluations of a training job that are
// suddenly much worse than those before.
package silentdatacorruption

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// What is evaluated: gauges, one point per evaluation. Of a score more is better,
// of a loss less.
const (
	metricScore = "gen_ai.training.eval.score"
	metricLoss  = "gen_ai.training.eval.loss"
)

const (
	eventDrop = rule.FindingPrefix + "evaluation_drop"
	eventEnd  = rule.FindingPrefix + "evaluation_drop.end"
)

// limits are the parameters of pattern.yaml.
type limits struct {
	worse, large float64
	history      int // evaluations that one is compared with
	least        int
}

// Caps: series, and evaluations of one that are not judged yet.
const (
	maxSeries  = 4096
	maxPending = 64
	maxPast    = 100 // the most that the parameter history can be
)

// Detector describes the detector for the library.
func Detector() rule.Detector {
	metrics := []string{metricLoss, metricScore}
	return rule.Detector{
		Name: "silent_data_corruption", Metrics: metrics,
		Trust:      verdict.Foreign, // the training code alone can say it
		Findings:   map[string][]string{eventDrop: metrics, eventEnd: metrics},
		Attributes: []string{rule.AttributeJob, rule.AttributeJobDomain, "gen_ai.training.eval.name", "host.name"},
		Parameters: map[string]rule.ParameterType{
			"worse": rule.NumberParameter, "large": rule.NumberParameter, "history": rule.IntegerParameter, "least_history": rule.IntegerParameter,
		},
		New: func(l rule.Limits) rule.Algorithm {
			d := &detector{lateness: l.Lateness, limits: limits{
				worse: l.Values.Number("worse"), large: l.Values.Number("large"),
				history: l.Values.Integer("history"), least: l.Values.Integer("least_history"),
			}}
			d.reset()
			return d
		},
	}
}

type detector struct {
	limits
	lateness int64
	series   map[string]*series
	order    *fairlru.List[string] // their keys, by host, domain and job
	evicted  uint64
}

func (d *detector) reset() { d.series, d.order = map[string]*series{}, &fairlru.List[string]{} }

func (d *detector) enter(key string, s *series) {
	d.series[key] = s
	s.element = d.order.Add(key, fairlru.Some, s.Host, s.Domain, s.Job)
}

// series is one evaluation of one job over time, as one machine tells it: a
// job of the same name elsewhere is not believed about this one. A job is its id inside its domain:
// who says no domain is in none of those that are known.
type series struct {
	Job     string  `json:"job"`
	Domain  string  `json:"domain,omitempty"`
	Host    string  `json:"host,omitempty"`
	Name    string  `json:"name,omitempty"`
	Loss    bool    `json:"loss"`
	Pending []point `json:"pending"` // not judged yet, in order of time
	Past    []point `json:"past"`    // judged, good ones only
	Last    int64   `json:"last"`
	Since   int64   `json:"since"` // of the drop that is told, 0 for none

	element *fairlru.Element[string]
}

type point struct {
	Time  int64   `json:"time"`
	Value float64 `json:"value"`
}

// Observe takes in one evaluation.
func (d *detector) Observe(r *rule.Record) bool {
	job, domain := r.JobInDomain()
	if job == "" {
		return false
	}
	name := rule.Text(r.Attributes, "gen_ai.training.eval.name")
	host := rule.Text(r.Resource, "host.name")
	key := strings.Join([]string{domain, job, r.Name, name, host}, "\x00")
	s := d.series[key]
	if s == nil {
		s = &series{Job: job, Domain: domain, Host: host, Name: name, Loss: r.Name == metricLoss}
		d.enter(key, s)
	}
	d.order.Touch(s.element, fairlru.Some)
	p := point{Time: r.Time, Value: r.Number}
	s.Last = max(s.Last, r.Time)
	at, _ := slices.BinarySearchFunc(s.Pending, p, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Value, b.Value))
	})
	s.Pending = slices.Insert(s.Pending, at, p)
	d.trim(s)
	return true
}

func (d *detector) trim(s *series) {
	if len(s.Pending) > maxPending {
		s.Pending = s.Pending[1:]
		d.evicted++
	}
	for len(d.series) > maxSeries {
		victim, _ := d.order.Victim()
		d.order.Remove(victim)
		delete(d.series, victim.Value)
		d.evicted++
	}
}

// Due is when no evaluation before the earliest one can come any more.
func (d *detector) Due() int64 {
	due := int64(0)
	for _, s := range d.series {
		if len(s.Pending) == 0 {
			continue
		}
		if at := s.Pending[0].Time + d.lateness + 1; due == 0 || at < due {
			due = at
		}
	}
	return due
}

// Decide judges the evaluations that are settled.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	for _, key := range slices.Sorted(maps.Keys(d.series)) {
		s := d.series[key]
		for len(s.Pending) > 0 && s.Pending[0].Time+d.lateness < now {
			findings = append(findings, d.judge(s, s.Pending[0])...)
			s.Pending = s.Pending[1:]
		}
	}
	return findings
}

// judge compares one evaluation with those before it. One that is worse does not
// become part of what the next is compared with.
func (l limits) judge(s *series, p point) []rule.Finding {
	worse, known := s.worse(p, l.least)
	if known && worse >= l.worse {
		if s.Since == 0 {
			s.Since = p.Time
		}
		return []rule.Finding{s.finding(eventDrop, p, worse, worse >= l.large)}
	}
	if !slices.Contains(s.Past, p) { // a record may come twice
		s.Past = append(s.Past, p)
		s.Past = s.Past[max(0, len(s.Past)-l.history):]
	}
	if s.Since == 0 {
		return nil
	}
	f := s.finding(eventEnd, p, worse, worse >= l.large)
	s.Since = 0
	return []rule.Finding{f}
}

// worse is by what part an evaluation is worse than the median of those before.
func (s *series) worse(p point, least int) (float64, bool) {
	if len(s.Past) < least {
		return 0, false
	}
	values := make([]float64, len(s.Past))
	for i := range s.Past {
		values[i] = s.Past[i].Value
	}
	slices.Sort(values)
	base := values[len(values)/2]
	if base == 0 {
		return 0, false
	}
	by := (base - p.Value) / math.Abs(base)
	if s.Loss {
		by = -by
	}
	return by, true
}

func (s *series) finding(event string, p point, worse float64, large bool) rule.Finding {
	f := rule.Finding{
		Event: event, ID: fmt.Sprintf("evaluation %q %s %s %s %t %d", s.Domain, s.Job, s.Host, s.Name, s.Loss, s.Since), Time: s.Since, Last: p.Time,
		Attributes: map[string]any{
			"gen_ai.training.job_id": s.Job, "evaluation.large": large,
			"evaluation.worse_percent": int64(math.Round(min(worse, 100) * 100)),
			"evaluation.host":          s.Host,
		},
	}
	if s.Domain != "" {
		f.Attributes[rule.AttributeJobDomain] = s.Domain
	}
	if s.Name != "" {
		f.Attributes["gen_ai.training.eval.name"] = s.Name
	}
	if event == eventEnd {
		f.Time = p.Time
	}
	return f
}

// Evicted counts series and evaluations that were forgotten because of the caps.
func (d *detector) Evicted() uint64 { return d.evicted }

// Snapshot returns the state; maps are written in the order of their keys.
func (d *detector) Snapshot() ([]byte, error) {
	data, err := json.Marshal(d.series)
	if err != nil {
		return nil, fmt.Errorf("write evaluations: %w", err)
	}
	return data, nil
}

var errState = errors.New("read evaluations: not the state of this detector")

// Restore replaces the state.
func (d *detector) Restore(data []byte) error {
	var all map[string]*series
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("read evaluations: %w", err)
	}
	for _, s := range all {
		if s == nil || len(s.Pending) > maxPending || len(s.Past) > maxPast {
			return errState
		}
	}
	if len(all) > maxSeries {
		return errState
	}
	d.reset()
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[a].Last, all[b].Last), cmp.Compare(a, b))
	}) {
		d.enter(key, all[key])
	}
	return nil
}
