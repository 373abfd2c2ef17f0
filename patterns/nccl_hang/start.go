package ncclhang

import (
	"cmp"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	starts "github.com/tracecoreai/tracecore/patterns/engine/run"
	"github.com/tracecoreai/tracecore/patterns/rule"
	trust "github.com/tracecoreai/tracecore/patterns/verdict"
)

var startAttributes = []string{rule.AttributeRankPID, rule.AttributeRankStart, rule.AttributeRestarts, rule.AttributeRendezvous}

// maxRanks is of how many ranks it is kept which start they belong to, of all jobs.
const maxRanks = 131_072

// jobOf names a job in the book of starts. Its trust is the same for all records: what says
// a process of a rank is tracecore's own, and others cannot (internal/ingress). With
// several, a job would be counted again when a better record of it comes.
func jobOf(id, domain string) starts.Job {
	return starts.Job{ID: id, Domain: domain, Trust: trust.Proven}
}

// start is one start of a job, and the one that it is one job with: an earlier one whose ranks live beside
// it, or itself. "" is not known.
type start struct{ own, of string }

// startOf returns which start of its job a record is about, and whether it told of a process that was
// not known.
func (j *Join) startOf(r *rule.Record) (begun start, news bool) {
	a := r.Attributes
	s := starts.Sighting{
		Job:     jobOf(rule.Job(a), rule.Text(a, rule.AttributeJobDomain)),
		Process: starts.Process{Host: rule.Text(r.Resource, "host.name")},
		Rank:    -1, Attempt: -1, Time: r.Time,
	}
	for _, name := range [...]string{"nccl.fr.rank", rule.AttributeRank} {
		if rank, says := socketstall.Rank(a, name); says {
			s.Rank = rank
		}
	}
	if n, says := rule.Integer(a, rule.AttributeRestarts); says {
		s.Attempt = n
	}
	s.PID, _ = rule.Integer(a, rule.AttributeRankPID)
	s.Start, _ = rule.Integer(a, rule.AttributeRankStart)
	begun.own, news, _ = j.starts.Of(&s)
	begun.of = cmp.Or(j.starts.With(s.Job, begun.own, r.Time), begun.own)
	return begun, news
}

// ofStart tells the dumps of one start of a job from those of another.
func (p *parsed) ofStart(begun start) {
	p.begun, p.own, p.run = begun.of, begun.own, socketstall.RunName(p.run, begun.of)
}

// process says which process of which start the rank to blame is, where that is known: by
// it others tell this start of the job from the next.
func (j *Join) process(r *run, f *Finding) {
	f.Process, _ = j.starts.Process(jobOf(r.job, r.domain), cmp.Or(r.anew[f.Rank()], r.begun), f.Rank())
}

// put notes of which start a rank is.
func put(anew map[int]string, rank int, begun string) map[int]string {
	if anew == nil {
		anew = map[int]string{}
	}
	anew[rank] = begun
	return anew
}
