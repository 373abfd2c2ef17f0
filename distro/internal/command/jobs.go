package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func newJobs() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Lists the starts of jobs that a running tracecore has seen, with their ranks and how they ended",
		Long: "Asks the tracecore that runs on this machine, or the one at --address, for the starts of jobs that it has seen:\n" +
			"the newest first. An agent sees the ranks of its node, a gateway those of all that send to it.\n\n" + listExits,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := l.query()
			if err != nil {
				return err
			}
			return ask(cmd, &l.asking, "/v1/jobs", query, writeJobs)
		},
	}
	l.flags(cmd, "only those that go on")
	return cmd
}

// writeJobs is for a reader at a terminal.
func writeJobs(w io.Writer, a *history.Jobs) error {
	var b strings.Builder
	if len(a.Runs) == 0 {
		fmt.Fprintf(&b, "No job was seen on %s that matches.\n", safetext.Line(a.Host))
	} else {
		shared := history.NamesOfSeveral(func(yield func(string, string) bool) {
			for i := range a.Runs {
				if run := &a.Runs[i]; !yield(run.Job, run.Domain) {
					return
				}
			}
		})
		table(&b, "JOB\tSTARTED, UTC\tLASTED\tSTOOD\tSTEP\tOUTCOME\tRANKS\tHOSTS\tFIRST FAILURE\tRUN", func(row func(cells ...string)) {
			for i := range a.Runs {
				run := &a.Runs[i]
				row(nameOf(run, shared), run.Began.UTC().Format(time.DateTime), went(run, a), stood(run), cmp.Or(run.Steps.PerStep(), "-"), strings.ReplaceAll(run.Outcome, "_", " "),
					ranksSeen(run), several(run.Hosts), firstFailure(run), run.ID)
			}
		})
	}
	if a.More {
		b.WriteString("\nThere are more: ask with --limit, --since, --job or --node.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// nameOf is the name of a run's job, with its domain where several have that name.
func nameOf(run *history.Run, shared map[string]bool) string {
	if !shared[run.Job] {
		return run.Job
	}
	return run.Job + ", " + cmp.Or(run.Domain, "no domain")
}

// went is how long a run took, or goes on by the clock of who told of it.
func went(run *history.Run, a *history.Jobs) string {
	end := a.At
	switch {
	case run.Outcome == history.RunFollowed:
		end = run.Updated
	case run.Ended != nil && run.Outcome != history.RunGoesOn:
		end = *run.Ended
	}
	if end.Before(run.Began) {
		return "0 s"
	}
	return verdict.Lasting(end.Sub(run.Began))
}

// stood is how long a run that was summed up made no progress.
func stood(run *history.Run) string {
	if run.Summary == nil {
		return "-"
	}
	return verdict.Lasting(time.Duration(run.Summary.Standing * float64(time.Second)))
}

// ranksSeen says how many ranks were seen, of how many.
func ranksSeen(run *history.Run) string {
	text := verdict.Number(run.RanksCount)
	if run.WorldSize > 0 {
		text += " of " + verdict.Number(run.WorldSize)
	}
	if run.EndedCount > 0 && run.EndedCount < run.RanksCount {
		text += ", " + verdict.Number(run.EndedCount) + " ended"
	}
	return text
}

func firstFailure(run *history.Run) string {
	if run.First == nil {
		return "-"
	}
	return fmt.Sprintf("rank %d on %s: %s", run.First.Rank, run.First.Host, run.First.How)
}
