// Package top is a live view for a terminal: what broke, who waits for whom, and how the
// ranks of each job fare. Its screens are made of a Picture, which a Source gives, and of
// what the user chose; the same of both give the same screen.
package top

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Picture is all that is shown, as it was told.
type Picture struct {
	Host     string // that tells, or the recording
	Recorded bool   // it does not go on
	At       time.Time

	Incidents []history.Incident // the newest first
	More      bool               // there are older ones
	Views     map[string]incidentview.View
	Named     []Named

	Jobs []history.RankJob // those that were wanted with nodes and groups
	Runs []history.Run     // that go on, as the history has them
	Rank *history.RankDetail

	// Unfed are the emitters from which nothing came that a pattern reads, since Started.
	Unfed   []string
	Started time.Time
	Status  *history.Status
	// Problem is what else is wrong with what tells.
	Problem string
}

// Named is a rank that an open verdict names.
type Named struct {
	Job, Domain string
	Rank        int
	Holds       bool // it is what its job waits for
	Slow        bool // it holds its job up without standing
	Incident    string
	Text        string
}

// holding are the patterns that name a rank for which its job waits.
var holding = []string{"nccl_socket_stall", "nccl_hang", "fuse_stall", "checkpoint_stall", "dataloader_hang"}

// NamedBy are the ranks that open verdicts of an incident name.
func NamedBy(verdicts []verdict.Verdict) []Named {
	var list []Named
	for i := range verdicts {
		v := &verdicts[i]
		rank, err := strconv.Atoi(v.Culprit["rank"])
		if err != nil || rank < 0 || v.Culprit["job"] == "" || v.Status != verdict.Open {
			continue
		}
		list = append(list, Named{
			Job: v.Culprit["job"], Domain: v.Culprit["job_domain"], Rank: rank, Holds: slices.Contains(holding, v.Pattern), Slow: v.Pattern == "straggler",
			Incident: v.IncidentID, Text: v.Headline,
		})
	}
	return list
}

// Want is what a screen needs beside the lists.
type Want struct {
	Incident    string
	Job, Domain string
	Rank        int // below 0 for none
}

// Source tells how things are.
type Source interface {
	// Look returns the picture of now. It may be asked each second.
	Look(ctx context.Context, want Want) (Picture, error)
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Open are the incidents that are open, the worst first.
func (p *Picture) Open() []*history.Incident {
	var list []*history.Incident
	for i := range p.Incidents {
		if p.Incidents[i].Status == verdict.Open {
			list = append(list, &p.Incidents[i])
		}
	}
	slices.SortFunc(list, history.WorstFirst)
	return list
}

// Broken reports whether an incident is open that is no drill.
func (p *Picture) Broken() bool {
	return slices.ContainsFunc(p.Open(), func(i *history.Incident) bool { return !i.Drill })
}

// last is the newest incident that is over.
func (p *Picture) last() *history.Incident {
	at := slices.IndexFunc(p.Incidents, func(i history.Incident) bool { return i.Status != verdict.Open })
	if at < 0 {
		return nil
	}
	return &p.Incidents[at]
}

// job finds a job by its name.
func (p *Picture) job(name, domain string) *history.RankJob {
	at := slices.IndexFunc(p.Jobs, func(j history.RankJob) bool { return j.Job == name && j.Domain == domain })
	if at < 0 {
		return nil
	}
	return &p.Jobs[at]
}

// about reports whether a verdict about that job can be about j.
func about(j *history.RankJob, job, domain string) bool {
	return j.Job == job && (domain == "" || j.Domain == "" || j.Domain == domain)
}

// named are the ranks of a job that verdicts name, each once, those that stand before
// those that are slow.
func (p *Picture) named(j *history.RankJob) map[int]Named {
	found := map[int]Named{}
	for _, n := range p.Named {
		if known, ok := found[n.Rank]; about(j, n.Job, n.Domain) && (!ok || known.Slow && !n.Slow || n.Holds && !known.Holds) {
			found[n.Rank] = n
		}
	}
	return found
}

// ranksOf is how many ranks of a job are seen.
func ranksOf(j *history.RankJob) int {
	n := 0
	for state, count := range j.Counts {
		if state != history.RankUnseen {
			n += count
		}
	}
	return n
}

// matches reports whether what is shown of something has the text that is looked for.
func matches(filter string, texts ...string) bool {
	return filter == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(filter))
	})
}
