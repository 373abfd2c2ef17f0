package engine

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/engine/fault"
	"github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// identify finds the run that r is about, and reports whether r told of a process that was
// not known: then the record is kept, also where no rule wants it. A run that takes the place of others
// ends what was open about them.
func (e *Engine) identify(r *record) bool {
	if v, ok := r.attributes.Get(rule.AttributeRun); ok && r.finding != nil { // nobody else knows it
		r.run = valueString(v)
		return false
	}
	s := SightingOf(r.resource, r.attributes)
	if s.ID == "" {
		return false
	}
	s.Time = r.Time
	if r.finding != nil {
		s.Trust = r.trust
	}
	s.Ended = r.source == rule.EventGone || r.source == rule.EventExit && outermost(r.attributes)
	id, news, began := e.runs.Of(&s)
	r.run = id
	if began != nil {
		e.faults.Restarted(fault.Restart{Job: began.Of.ID, Domain: began.Of.Domain, Trust: began.Of.Trust, Run: began.ID, Older: began.Older, Stands: began.Stands, At: began.At})
	}
	return news
}

// outermost reports whether the end of a process is that of its rank.
func outermost(attributes pcommon.Map) bool {
	for _, key := range [...]string{"process.exit.inherited_identity", "process.exit.helper"} {
		if v, ok := attributes.Get(key); ok && v.Bool() {
			return false
		}
	}
	return true
}

// SightingOf is what a record says of the run that it is about.
func SightingOf(resource, attributes pcommon.Map) run.Sighting {
	s := run.Sighting{Job: run.Job{ID: rule.Job(attributes)}}
	if s.ID == "" {
		return s
	}
	s.Domain, s.Trust = rule.Text(attributes, rule.AttributeJobDomain), rule.TrustOf(resource, attributes)
	s.Rank, s.Attempt = int(numberOr(attributes, rule.AttributeRank, -1)), numberOr(attributes, rule.AttributeRestarts, -1)
	s.Host = rule.Text(resource, "host.name")
	s.World = int(numberOr(attributes, "gen_ai.training.world_size", 0))
	s.PID, s.Start = numberOr(attributes, rule.AttributeRankPID, 0), numberOr(attributes, rule.AttributeRankStart, 0)
	if s.PID > 0 && s.PID == numberOr(attributes, rule.AttributePID, 0) {
		s.Boot, s.Since = rule.Text(resource, rule.AttributeBoot), numberOr(attributes, rule.AttributeStarted, 0)
	}
	return s
}

// RunOf returns what a record that the engine was shown says of its run, and the id of the
// run, "" when nobody can tell.
func (e *Engine) RunOf(resource, attributes pcommon.Map, at int64) (run.Sighting, string) {
	s := SightingOf(resource, attributes)
	s.Time = at
	id, _, _ := e.runs.Of(&s) // it was told already
	return s, id
}

// moot reports whether a finding says that it is about a start of a job which another has
// followed: a detector may go on to tell of processes whose end nobody saw.
func (e *Engine) moot(r *record) bool {
	if _, says := r.attributes.Get(rule.AttributeRun); !says {
		return false
	}
	return e.runs.Followed(r.job(), r.run) > r.Time
}

// job is the job that r says it is of.
func (r *record) job() run.Job {
	return run.Job{ID: rule.Job(r.attributes), Domain: rule.Text(r.attributes, rule.AttributeJobDomain), Trust: r.trust}
}

func numberOr(attributes pcommon.Map, key string, otherwise int64) int64 {
	if n, ok := rule.Integer(attributes, key); ok {
		return n
	}
	return otherwise
}

// HostOf returns the machine on which a rank of a job ran at a time, as its kernel told;
// "" where none did.
func (e *Engine) HostOf(job, domain string, rank int, at int64) string {
	of := run.Job{ID: job, Domain: domain, Trust: verdict.Proven}
	id, _, _ := e.runs.Of(&run.Sighting{Job: of, Rank: rank, Attempt: -1, Time: at})
	p, _ := e.runs.Process(of, id, rank)
	return p.Host
}
