package ranks

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

const (
	// eventStep is how the code of a job tells that a rank begins a step. A recording has it;
	// a processor that follows steps calls Step.
	eventStep = "training.step.begin"
	// mostRecent is how many steps of a rank its pace is made of.
	mostRecent = 8
	// mostLeft bounds the starts of jobs that were forgotten before their steps were kept.
	mostLeft = 256
)

// pace is how fast a rank makes its steps: begins, in unix nanoseconds.
type pace struct {
	count       uint64
	first, last int64
	recent      [mostRecent]int64
	held        int // of recent
}

func (p *pace) step(at int64) {
	switch {
	case at == p.last:
		return
	case at < p.last: // a clock was set, or somebody told of the future
		p.held = 0
	}
	if p.held == mostRecent {
		copy(p.recent[:], p.recent[1:])
		p.held--
	}
	p.recent[p.held] = at
	p.held++
	p.count, p.last = p.count+1, at
	if p.first == 0 || at < p.first {
		p.first = at
	}
}

// lately is how long one of the last steps took.
func (p *pace) lately() float64 {
	if p.held < 2 {
		return 0
	}
	return time.Duration(p.recent[p.held-1]-p.recent[0]).Seconds() / float64(p.held-1)
}

// overall is how long one of all steps took.
func (p *pace) overall() float64 {
	if p.count < 2 {
		return 0
	}
	return time.Duration(p.last-p.first).Seconds() / float64(p.count-1)
}

func (p *pace) steps(each float64) *history.Steps {
	return &history.Steps{Count: p.count, First: time.Unix(0, p.first).UTC(), Last: time.Unix(0, p.last).UTC(), Each: each}
}

// Step notes that a rank began a step, as the code of its job tells. The rank is believed on
// the machine where its kernel shows it. A job that says no id is the one that has that rank
// there; where two have it, it is nobody's.
func (b *Book) Step(host, id string, number int, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.step(host, id, number, at)
}

func (b *Book) step(host, id string, number int, at int64) {
	found := b.only(host, jobKey{id: id}, number)
	if found == nil || number < 0 {
		return
	}
	r := found.ranks[number]
	if r.pace == nil {
		r.pace = &pace{}
	}
	r.pace.step(at)
	found.stepped, found.paced = true, true
}

// takeStep notes the step of a record.
func (b *Book) takeStep(resource, a pcommon.Map, at int64) {
	number, ok := socketstall.Rank(a, "gen_ai.training.rank")
	if host := rule.Text(resource, "host.name"); ok && host != "" {
		b.step(host, cmp.Or(rule.Text(a, "gen_ai.training.job_id"), rule.Text(resource, "gen_ai.training.job_id")), number, at)
	}
}

// lately are the steps of a job's ranks: how long one takes is the median of theirs.
func (j *job) lately() *history.Steps {
	if !j.paced {
		return nil
	}
	var most *pace
	var each []float64
	told := 0
	for _, r := range j.ranks {
		if r.pace == nil {
			continue
		}
		told++
		if most == nil || r.pace.count > most.count || r.pace.count == most.count && r.pace.last > most.last {
			most = r.pace
		}
		if took := r.pace.lately(); took > 0 {
			each = append(each, took)
		}
	}
	if most == nil {
		return nil
	}
	took := 0.0
	if slices.Sort(each); len(each) > 0 {
		took = each[len(each)/2]
	}
	s := most.steps(took)
	s.Ranks = told
	return s
}

// Steps are those that the starts of jobs have made, of which some were made since it was
// asked last.
func (b *Book) Steps() []history.Sighting {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.left
	b.left = nil
	for _, j := range b.jobs {
		if one, ok := j.toKeep(); ok {
			told = append(told, one)
		}
	}
	slices.SortFunc(told, func(a, b history.Sighting) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Run, b.Run)) })
	return told
}

// toKeep is what the history keeps of the steps of a job, if some are new.
func (j *job) toKeep() (history.Sighting, bool) {
	if !j.stepped || j.run == "" {
		return history.Sighting{}, false
	}
	j.stepped = false
	var most *pace
	told := 0
	for _, r := range j.ranks {
		if r.pace != nil {
			told++
			if most == nil || r.pace.count > most.count {
				most = r.pace
			}
		}
	}
	s := most.steps(most.overall())
	s.Ranks = told
	return history.Sighting{Run: j.run, Job: j.id, Domain: j.domain, Trust: j.trust, Steps: s}, true
}
