package fault

import (
	"cmp"
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/patterns/engine/incident"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// witness is a fault that has a verdict, as incidents ask it (incident.Verdict).
type witness struct{ *Fault }

// ID of the verdict.
func (f witness) ID() string { return f.verdict.id }

// Pattern is the name of the rule.
func (f witness) Pattern() string { return f.rule.Name }

// PatternID is the id of the rule.
func (f witness) PatternID() int { return f.rule.ID }

// Onset is when the fault was first seen, as it was first given out.
func (f witness) Onset() int64 { return f.verdict.onset }

// Began is when what was seen began.
func (f witness) Began() int64 { return f.verdict.since }

// Resolved is when the fault cleared, 0 while it is open.
func (f witness) Resolved() int64 { return f.verdict.resolved }

// Withdrawn reports whether evidence refuted the verdict.
func (f witness) Withdrawn() bool { return f.verdict.withdrawn }

// Expired reports whether it is kept only for effects that show later, or leaves, and nobody saw it end.
func (f witness) Expired() bool {
	v := f.verdict
	return (f.past || f.dead) && (v.resolved == 0 || v.closing != nil && v.closing.Name == silence)
}

// Trust is the weakest trust of what its confidence rests on.
func (f witness) Trust() verdict.Trust { return f.verdict.best.trust }

// Parties says whose fault it is, by the marks that name it.
func (f witness) Parties() incident.Parties {
	var o incident.Parties
	for _, m := range f.lending {
		o.Add(f.rule.process(m.Values))
	}
	return o
}

// Accuses returns whose fault it is by the evidence until then that says so. A verdict is sure of it
// when it is full; a death is sure of who died.
func (f witness) Accuses(until int64) (c incident.Culprits, sure bool) {
	if !f.Sure() {
		return c, false
	}
	for i, w := range f.rule.Watches {
		if len(w.accuses) == 0 || !f.saw(w) {
			continue
		}
		for j := range f.marks[i] {
			if m := &f.marks[i][j]; !m.Gone && m.since() <= until && f.trusted(w, m, f.verdict.best.trust) {
				sure = true
				f.rule.accuse(&c, w.accuses, m)
			}
		}
	}
	return c, sure
}

// Sure reports whether it is full, or tells of a death.
func (f witness) Sure() bool { return f.Full() || f.rule.Terminal }

// Severity is how bad it is.
func (f witness) Severity() verdict.Severity { return report(f).severity() }

// Leads reports whether it was last given out as the root cause of its incident, as a fault.
func (f witness) Leads() bool { return f.verdict.leads }

// Full reports whether its confidence is full.
func (f witness) Full() bool { return f.verdict.best.confidence == verdict.Full }

// Names returns whom the evidence until then names. Where a rule says which ranks its evidence
// accuses, the others that it hits are those that wait.
func (f witness) Names(until int64) incident.Culprits {
	var c incident.Culprits
	fields := f.accusing()
	if fields == nil && until == math.MaxInt64 {
		c.Ranks = f.Ranks()
	}
	for _, m := range f.lending {
		if m.since() > until {
			continue
		}
		if fields == nil {
			c.Ranks = union(c.Ranks, f.rule.ranksOf(m))
		}
		f.rule.accuse(&c, fields, m)
	}
	return c
}

// accusing are the fields of the ranks that evidence accuses which was seen; where none was, those
// of all evidence that would.
func (f witness) accusing() (seen []int) {
	var all []int
	for _, w := range f.rule.Watches {
		if all = append(all, w.accuses...); len(w.accuses) > 0 && f.saw(w) {
			seen = append(seen, w.accuses...)
		}
	}
	if seen == nil {
		return all
	}
	return seen
}

// accuse adds what m names, and the ranks in these fields of it.
func (r *Rule) accuse(c *incident.Culprits, ranks []int, m *Mark) {
	c.Add(r.get(m.Values, "host"), r.get(m.Values, "pid"), r.get(m.Values, "gpu"))
	for _, at := range ranks {
		c.Ranks = union(c.Ranks, m.Lists[at])
		if rank, ok := ParseRank(m.Values[at]); ok {
			c.Ranks = union(c.Ranks, []int{rank})
		}
	}
}

// Saw reports whether that evidence held in what was seen.
func (f witness) Saw(evidence int) bool {
	return f.everSaw(f.rule.Watches[evidence])
}

// SeenBetween reports whether one of these pieces of evidence, or of all where there are none,
// was seen between two moments.
func (f witness) SeenBetween(evidence []int, from, to int64) bool {
	for w, m := range f.lending {
		if (len(evidence) == 0 || slices.Contains(evidence, w.index)) && m.Time <= to && m.Last >= from {
			return true
		}
	}
	return false
}

// Ranks returns the ranks on its marks.
func (f witness) Ranks() []int {
	ranks := f.ranksOf(f.verdict.best.trust)
	for w, m := range f.lending {
		if w.conditional() {
			ranks = union(ranks, f.rule.ranksOf(m))
		}
	}
	return ranks
}

// RanksOf returns the ranks on its marks that can be of job, all where none is named.
func (f witness) RanksOf(job incident.Job) (ranks []int) {
	mixed := false
	for _, m := range f.lending {
		if of := f.rule.process(m.Values).Job; job.ID != "" && of.ID != "" && !of.Is(job) {
			mixed = true
		} else if job.ID != "" {
			ranks = union(ranks, f.rule.ranksOf(m))
		}
	}
	if !mixed { // those of marks that have left, too
		return f.Ranks()
	}
	return ranks
}

// RanksUntil returns the ranks of the marks until then; all is false when marks
// have left because of the cap.
func (f witness) RanksUntil(until int64) (ranks []int, all bool) {
	for _, m := range f.lending {
		if m.Time <= until {
			ranks = union(ranks, f.rule.ranksOf(m))
		}
	}
	return ranks, !f.short()
}

// Lists reports whether a mark has one of the ranks in one of these fields.
func (f witness) Lists(fields, ranks []int) bool {
	for _, m := range f.lending {
		if slices.ContainsFunc(fields, func(field int) bool { return meet(m.Lists[field], ranks) }) {
			return true
		}
	}
	return false
}

// Places visits where its marks have it in the graph, whether they count or not, and returns true where the
// cap took some.
func (f witness) Places(visit func(*incident.Link, string, incident.Role)) (short bool) {
	if !f.short() {
		return false
	}
	for i := range f.marks {
		for j := range f.marks[i] {
			f.rule.places(&f.marks[i][j], visit)
		}
	}
	return true
}

// Domain is that of its job, "" when none of its marks says one.
func (f witness) Domain() string { return f.domain }

// Run is the start of its job that a fault is of, "" when it is of none or not known.
func (f witness) Run() string { return f.run }

// Runs are the starts of jobs that its evidence is about; all is false where some of it names
// a job and no start.
func (f witness) Runs() (runs []string, all bool) {
	all = true
	for _, m := range f.lending {
		switch run := cmp.Or(m.Run, f.rule.get(m.Values, "run")); {
		case run == "":
			all = all && f.rule.get(m.Values, "job") == ""
		case !slices.Contains(runs, run):
			runs = append(runs, run)
		}
	}
	return runs, all
}

// Together is as the verdicts of package incident have it.
func (f witness) Together(one, other string) int64 {
	for _, m := range f.lending {
		if job := f.rule.get(m.Values, "job"); job != "" {
			return f.set.together(job, f.domain, one, other, f.stands())
		}
	}
	return 0
}

// CauseCleared resolves a symptom because its cause, which is trusted as much, was
// resolved.
func (f witness) CauseCleared(cause incident.Verdict) {
	if f.verdict.resolved != 0 || f.rule.clears() || f.rule.Terminal || cause.Withdrawn() || cause.Trust() < f.verdict.best.stands {
		return
	}
	at := max(cause.Resolved(), f.verdict.onset)
	f.resolve(at, closed("cause_cleared", at, "its cause ("+cause.Pattern()+") has cleared"))
}
