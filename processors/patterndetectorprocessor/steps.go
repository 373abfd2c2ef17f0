package patterndetectorprocessor

import (
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor/internal/steps"
)

// mostAsked is how many ranks of one verdict are looked for: a job has more than any reader
// of a verdict follows.
const mostAsked = 1024

// placing puts verdicts in the steps of the ranks that they name. It is beside the engine,
// which knows nothing of spans: they change no conclusion and no revision. Without a traces
// pipeline there is none.
type placing struct {
	*steps.Book
	// placed has where open verdicts fall: the book soon forgets the step of a hang that is
	// resolved an hour later.
	placed map[string]*fairlru.Element[placement]
	order  fairlru.List[placement]
	most   int
}

// placement is where one verdict falls.
type placement struct {
	id    string
	span  verdict.Span
	ranks []verdict.RankSpan
}

func newPlacing(config *Config, told func(who steps.Rank, begin int64)) *placing {
	return &placing{
		Book: steps.New(steps.Options{
			Spans: config.Steps.Spans, Begin: config.Steps.Begin, Rank: config.Steps.Rank, Job: config.Steps.Job, Ranks: config.Limits.Steps, Told: told,
		}),
		placed: map[string]*fairlru.Element[placement]{}, order: timeline.NewOrder[placement](), most: config.Limits.Verdicts,
	}
}

// followSteps begins to, before anything starts.
func (d *detector) followSteps() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.steps == nil {
		d.steps = newPlacing(d.config, d.stepTold)
	}
}

// traces notes the steps among spans. Judgement knows nothing of it.
func (d *detector) traces(td ptrace.Traces) { d.steps.Spans(td) }

// stepTold has the book of ranks count a step.
func (d *detector) stepTold(who steps.Rank, begin int64) {
	if book := d.keeping.book.Load(); book != nil {
		book.Step(who.Host, who.Job, who.Number, begin)
	}
}

// begins notes the steps that begin, where steps are followed.
func (d *detector) begins(ld plog.Logs) {
	if d.steps != nil {
		d.steps.Begins(ld)
	}
}

// inStep gives v the ids of the steps that it falls into. mu is held.
func (d *detector) inStep(v *verdict.Verdict) {
	s := d.steps
	if s == nil {
		return
	}
	p := s.known(v.ID)
	if s.Stats().Ranks > 0 {
		d.look(v, &p)
	}
	if p.span.Known() && (!p.span.Claimed || !v.Span.Known() || v.Span.Claimed) {
		v.Span = p.span
	}
	v.RankSpans = p.ranks
	s.keep(v, p)
}

// look finds the steps that were going on as v began: of the rank that v names, and of the
// others that it hit.
func (d *detector) look(v *verdict.Verdict, p *placement) {
	named, err := strconv.Atoi(v.Culprit["rank"])
	if err != nil {
		named = -1
		if len(v.BlastRadius) == 1 {
			named = v.BlastRadius[0]
		}
	}
	if named >= 0 && (!p.span.Known() || p.span.Claimed) {
		if span, ok := d.stepOf(v, named, v.Culprit["host"]); ok && (!p.span.Known() || !span.Claimed) {
			p.span = span
		}
	}
	for _, rank := range v.BlastRadius[:min(len(v.BlastRadius), mostAsked)] {
		if len(p.ranks) == verdict.MaxRankSpans {
			return
		}
		if rank == named || slices.ContainsFunc(p.ranks, func(r verdict.RankSpan) bool { return r.Rank == rank }) {
			continue
		}
		if span, ok := d.stepOf(v, rank, ""); ok {
			p.ranks = append(p.ranks[:len(p.ranks):len(p.ranks)], verdict.RankSpan{Rank: rank, TraceID: span.TraceID, SpanID: span.SpanID, Claimed: span.Claimed})
		}
	}
}

// stepOf is the step that a rank was in as v began. A rank is believed on the machine where
// its kernel shows it, or where v names it: nobody speaks of the steps of a job elsewhere.
func (d *detector) stepOf(v *verdict.Verdict, rank int, named string) (verdict.Span, bool) {
	at, job := v.Onset.UnixNano(), v.Culprit["job"]
	host := d.engine.HostOf(job, v.Culprit["job_domain"], rank, at)
	if host == "" {
		host = named
	}
	if host == "" {
		return verdict.Span{}, false
	}
	who := steps.Rank{Host: host, Job: job, Number: rank}
	return d.steps.Within(who, at, d.steps.Own(who, v.Culprit["job_domain"]))
}

func (s *placing) known(id string) placement {
	if e := s.placed[id]; e != nil {
		return e.Value
	}
	return placement{id: id}
}

// keep remembers where an open verdict falls.
func (s *placing) keep(v *verdict.Verdict, p placement) {
	e := s.placed[v.ID]
	switch {
	case v.Status == verdict.Resolved || !p.span.Known() && len(p.ranks) == 0:
		if e != nil {
			s.order.Remove(e)
			delete(s.placed, v.ID)
		}
	case e != nil:
		e.Value = p
		s.order.Touch(e, fairlru.Some)
	default:
		s.placed[v.ID] = s.order.Add(p, fairlru.Some, ownerOfVerdict(v)...)
		for s.order.Len() > s.most {
			victim, _ := s.order.Victim()
			s.order.Remove(victim)
			delete(s.placed, victim.Value.id)
		}
	}
}
