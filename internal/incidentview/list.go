package incidentview

import (
	_ "embed" // the page
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// List is a page of incidents and of the starts of jobs, the newest first.
type List struct {
	Host string    // whose history it is
	At   time.Time // when it was asked
	Rows []Row
	More bool // there are more than are listed
	Jobs []JobRow
	// Agents are those that need a look most; none where there are no others than the
	// machine's own.
	Agents      []AgentRow
	AgentsWords string // how many there are
}

// AgentRow is one agent.
type AgentRow struct {
	Host, State, Lost string
	Failing           string // its parts that do not work
	Well              bool
	Since             time.Time
}

// JobRow is one start of a job.
type JobRow struct {
	Job     string
	Outcome string
	Failed  string // how its first rank failed, "" where none did
	Ranks   string
	Hosts   string
	Step    string // how long a step takes, "" where nobody tells
	Stood   string // "" where that is not known
	Since   time.Time
	Lasted  time.Duration
}

// Row is one incident of a list.
type Row struct {
	Link     string // to its page
	Headline string
	State    string // how bad, how certain, whether it is over
	Over     bool
	Where    string
	Job      string
	Since    time.Time
	Lasted   time.Duration
}

const mostRows = 1000

//go:embed list.tmpl
var listTemplate string

var listPage = template.Must(template.New("list").Funcs(template.FuncMap{
	"stamp": stamp, "iso": iso, "lasting": verdict.Lasting, "fields": strings.Fields, "whole": whole,
}).Parse(listTemplate))

// Policy is the content security policy of every page: it loads nothing, runs nothing, and is
// framed by nobody.
func Policy() string { return policy + "; frame-ancestors 'none'" }

// WriteListHTML writes one page that needs nothing beside it.
func WriteListHTML(w io.Writer, l List) error {
	rows := l.Rows
	l.Host, l.More, l.Rows = text(l.Host, verdict.MaxNameBytes), l.More || len(rows) > mostRows, nil
	for _, r := range rows[:min(len(rows), mostRows)] {
		for _, s := range []*string{&r.Headline, &r.State, &r.Where, &r.Job} {
			*s = text(*s, maxText)
		}
		l.Rows = append(l.Rows, r)
	}
	jobs := l.Jobs
	l.Jobs = nil
	for _, j := range jobs[:min(len(jobs), mostRows)] {
		for _, s := range []*string{&j.Job, &j.Outcome, &j.Failed, &j.Ranks, &j.Hosts, &j.Step, &j.Stood} {
			*s = text(*s, maxText)
		}
		l.Jobs = append(l.Jobs, j)
	}
	agents := l.Agents
	l.Agents, l.AgentsWords = nil, text(l.AgentsWords, maxText)
	for _, a := range agents[:min(len(agents), mostRows)] {
		for _, s := range []*string{&a.Host, &a.State, &a.Lost, &a.Failing} {
			*s = text(*s, maxText)
		}
		l.Agents = append(l.Agents, a)
	}
	return listPage.Execute(w, struct {
		List
		Policy string
		Style  template.HTML
	}{l, policy, template.HTML("<style>" + css + "</style>")}) //nolint:gosec // our own style sheet
}
