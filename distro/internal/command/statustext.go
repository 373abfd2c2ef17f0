package command

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/distro/internal/top"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// writeStatus is for a reader at a terminal: what is wrong first, then what is not seen.
func writeStatus(w io.Writer, r *statusReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", safetext.Line(r.Host), r.sentence())
	writeWorst(&b, r)
	writeProbes(&b, r)
	writeUnseen(&b, r)
	writeAgents(&b, r)
	writeFeeds(&b, r)
	writeAiling(&b, r)
	writeQueues(&b, r)
	writeDrops(&b, r)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeWorst shows the open incidents that have to be looked at first.
func writeWorst(b *strings.Builder, r *statusReport) {
	for i := range r.Worst {
		one := &r.Worst[i]
		fmt.Fprintf(b, "since %s UTC  %s  %s\n", one.Onset.UTC().Format(time.DateTime), safetext.Line(one.State(r.At)), safetext.Line(several(one.Nodes)))
		for _, line := range top.Wrap(safetext.Line(one.Headline), columns-2) {
			fmt.Fprintf(b, "  %s\n", line)
		}
		fmt.Fprintf(b, "  tracecore incidents show %s\n\n", safetext.Line(one.ID))
	}
}

func writeProbes(b *strings.Builder, r *statusReport) {
	if len(r.Probes) == 0 {
		return
	}
	table(b, "PROBE OF\tHOOK\tWORKS", func(row func(cells ...string)) {
		for _, p := range r.Probes {
			row(p.Component, cmp.Or(p.Hook, "none"), yesNo(p.Up))
		}
	})
	b.WriteByte('\n')
}

// writeUnseen says which processes of jobs are not watched, or in part.
func writeUnseen(b *strings.Builder, r *statusReport) {
	say := func(text string) { fmt.Fprintf(b, "%s\n\n", strings.Join(top.Wrap(text, columns), "\n")) }
	if r.Unranked > 0 {
		say(fmt.Sprintf("%s processes move data between them as the ranks of a job do, and nothing says which ranks they are: their stalls and hangs go unseen. "+
			"Each needs its rank and the number of ranks in its environment: %s. The log of the agent has their pids.", verdict.Number(r.Unranked), identity.Variables))
	}
	if r.Unseen > 0 {
		say(fmt.Sprintf("Processes of ranks of which not all collectives are seen: %s. NCCL is linked into their program and exports no function, or their GPUs communicate by themselves (NVSHMEM, the device API of NCCL). "+
			"Their stacks and sockets are seen. The records nccl.call.limited name them.", verdict.Number(r.Unseen)))
	}
}

// writeAiling shows the components that report an error.
func writeAiling(b *strings.Builder, r *statusReport) {
	if len(r.Ailing) == 0 {
		return
	}
	table(b, "COMPONENT\tSINCE, UTC\tSAYS", func(row func(cells ...string)) {
		for _, one := range r.Ailing {
			row(one.Kind+" "+one.Component, one.Since.UTC().Format(time.DateTime), one.Error)
		}
	})
	b.WriteByte('\n')
}

// writeQueues shows what waits for backends.
func writeQueues(b *strings.Builder, r *statusReport) {
	if len(r.Queues) == 0 {
		return
	}
	table(b, "BACKEND\tSIGNAL\tWAITING\tROOM\tGIVEN UP", func(row func(cells ...string)) {
		for _, q := range r.Queues {
			row(q.Exporter, q.Signal, q.held(q.Waiting), q.held(q.Room), fmt.Sprintf("%.0f %s", q.GivenUp, q.items()))
		}
	})
	b.WriteByte('\n')
}

// writeDrops shows what was dropped since the start, or why that is not known.
func writeDrops(b *strings.Builder, r *statusReport) {
	switch {
	case r.MetricsError != "":
		fmt.Fprintf(b, "Probes and drops are not known: %s; --metrics names another place\n", safetext.Line(r.MetricsError))
	case len(r.Drops) == 0:
		b.WriteString("Nothing was dropped since the start.\n")
	default:
		table(b, "DROPPED\tCOUNT\tOF", func(row func(cells ...string)) {
			for _, d := range r.Drops {
				row(d.Metric, fmt.Sprintf("%.0f", d.Count), labelWords(d.Labels))
			}
		})
	}
}

// sentence says the one thing that has to be known.
func (r *statusReport) sentence() string {
	switch {
	case r.RootCauses > 0:
		return fmt.Sprintf("%s open, %d with a certain cause: see `tracecore incidents --open`", counted(uint64(r.Open), "incident"), r.RootCauses)
	case r.Problem != "":
		return "incidents are not known: " + safetext.Line(r.Problem)
	case r.Others() && r.Agents.Watching == 0:
		return "blind: none of the agents tells that it watches"
	case r.exit() == statusBlind:
		return "blind: no probe works, and nothing came that a pattern reads"
	case r.Open > 0:
		return fmt.Sprintf("%s open, none with a certain cause: see `tracecore incidents --open`", counted(uint64(r.Open), "incident"))
	}
	if n := r.Agents.Silent; r.Others() && n > 0 {
		return "nothing is wrong that tracecore can see; of the agents " + verdict.Number(n) + " " + map[bool]string{true: "is", false: "are"}[n == 1] + " silent"
	}
	return "nothing is wrong that tracecore can see"
}

// writeAgents says which machines are watched.
func writeAgents(b *strings.Builder, r *statusReport) {
	if !r.Others() {
		return
	}
	fmt.Fprintf(b, "Agents: %s\n", r.AgentsInWords())
	table(b, "HOST\tSTATE\tSINCE, UTC\tLOST\tDOES NOT WORK", func(row func(cells ...string)) {
		for i := range r.WorstAgents {
			a := &r.WorstAgents[i]
			row(a.Host, a.Words(), a.Since.UTC().Format(time.DateTime), a.Lost(), cmp.Or(strings.Join(a.Failing(), ", "), "-"))
		}
	})
	if more := r.Agents.All() - len(r.WorstAgents); more > 0 {
		fmt.Fprintf(b, "%s more: `tracecore status --agents` lists all\n", verdict.Number(more))
	}
	b.WriteByte('\n')
}

// columns are those of a terminal that nobody has made larger.
const columns = 80

// writeFeeds says what came of the events and metrics that each pattern reads, and what never did.
func writeFeeds(b *strings.Builder, r *statusReport) {
	if len(r.Feeds) == 0 {
		return
	}
	patterns, never := history.FedOf(r.Feeds)
	states := map[string]string{}
	for _, p := range r.Patterns {
		states[p.Name] = string(p.State)
	}
	heading := "PATTERN\tCAME\tLAST, UTC"
	if len(states) > 0 {
		heading = "PATTERN\tIS\tCAME\tLAST, UTC"
	}
	table(b, heading, func(row func(cells ...string)) {
		for _, f := range patterns {
			when := "never"
			if !f.Last.IsZero() {
				when = f.Last.UTC().Format(time.DateTime)
			}
			cells := []string{f.Pattern, fmt.Sprintf("%d of %d", f.Came, f.All), when}
			if len(states) > 0 {
				cells = slices.Insert(cells, 1, cmp.Or(states[f.Pattern], "-"))
			}
			row(cells...)
		}
	})
	if len(states) > 0 {
		b.WriteString("Full: a certain verdict can come. Degraded: a likely one at most, or one that\nnames nobody. Silent: none until a source beside the probes speaks. Blind: none.\n`tracecore bpf-check` says what is missing. -: a pattern of this site.\n")
	}
	if len(never) > 0 {
		b.WriteString("Never came since the start:\n")
		for _, line := range top.Wrap(safetext.Line(strings.Join(never, " ")), columns-2) {
			fmt.Fprintf(b, "  %s\n", line)
		}
	}
	b.WriteByte('\n')
}

func labelWords(labels map[string]string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, name+"="+labels[name])
	}
	return cmp.Or(strings.Join(words, " "), "-")
}

// held is a number of what the queue holds, with its unit where it is known.
func (q *queueStatus) held(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	if q.Unit != "" {
		text = verdict.Sized(text + " " + q.Unit)
	}
	return text
}

// items are what a signal consists of.
func (q *queueStatus) items() string {
	return cmp.Or(map[string]string{"metrics": "points", "traces": "spans"}[q.Signal], "records")
}
