package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func newIncidents() *cobra.Command {
	cmd := newIncidentsList("incidents")
	cmd.AddCommand(newIncidentsList("list"), newIncidentsShow(), newIncidentsAck(), newIncidentsMute(), newIncidentsUnmute())
	return cmd
}

func newIncidentsList(use string) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   use,
		Short: "Lists what broke: the incidents that a running tracecore has kept",
		Long: "Asks the tracecore that runs on this machine, or the one at --address, for the incidents that its extension\n" +
			"history has kept: the newest first. An incident is one fault with what it led to. INCIDENT is its id, or how it begins\n" +
			"(8 characters or more).\n\n" + listExits,
		Example: "  tracecore incidents --since 12h --job llm-pretrain\n  tracecore incidents show INCIDENT",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := l.query()
			if err != nil {
				return err
			}
			return ask(cmd, &l.asking, "/v1/incidents", query, writeIncidents)
		},
	}
	l.flags(cmd, "only those that are open")
	return cmd
}

func newIncidentsShow() *cobra.Command {
	var a asking
	var revisions bool
	cmd := &cobra.Command{
		Use: "show INCIDENT", Short: "Shows an incident: what broke, where, since when, what to do, what was seen, what it led to",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if revisions {
				query.Set("revisions", "true")
			}
			return ask(cmd, &a, incidentPath(args[0]), query, writeIncident)
		},
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&revisions, "revisions", false, "also each statement that was made, with its time")
	return cmd
}

func newIncidentsAck() *cobra.Command {
	var a asking
	var note string
	cmd := &cobra.Command{
		Use: "ack INCIDENT", Short: "Notes that you have seen an incident; it stays open until the fault clears",
		Long: "Notes that you have seen an incident. It goes over the Unix socket in the folder of the history, which root\n" +
			"and the user of tracecore alone may use: the kernel says who acknowledges. It changes nothing else.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return tell(cmd, &a, incidentPath(args[0])+"/acknowledgement", map[string]string{"note": note}, writeAcknowledged)
		},
	}
	a.formatFlag(cmd)
	a.socketFlag(cmd)
	cmd.Flags().StringVar(&note, "note", "", "what others should know, as a ticket")
	return cmd
}

func newIncidentsMute() *cobra.Command {
	var a asking
	var reason string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "mute INCIDENT --for DURATION --reason TEXT", Short: "Keeps an incident from being told for a time; the history goes on to show it",
		Long: "Keeps what is new about an incident from exporters until the time is over: nobody is paged for it, no node is drained.\n" +
			"The history goes on to keep and to show it. Exporters that have told it as open tell when it is over. A cause that is found\n" +
			"later and is another incident is told. It changes nothing on another tracecore.\n" +
			"The kernel says who mutes: the caller on the Unix socket in the folder of the history.",
		Example: "  tracecore incidents mute 4f3c9a1e --for 2h --reason OPS-4711",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := muteFor(lasts, reason)
			if err != nil {
				return usage(fmt.Errorf("--%w", err))
			}
			return tell(cmd, &a, mutePath(args[0]), body, writeMuted)
		},
	}
	a.formatFlag(cmd)
	a.socketFlag(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, as 30m or 2h")
	cmd.Flags().StringVar(&reason, "reason", "", "why, as a ticket")
	return cmd
}

// muteFor is what the history is told to mute an incident.
func muteFor(lasts time.Duration, reason string) (map[string]any, error) {
	switch {
	case lasts <= 0 || lasts > history.MaxMute:
		return nil, fmt.Errorf("for %s: a mute has an end: give up to %dh, as 30m or 2h", lasts, history.MaxMute/time.Hour)
	case strings.TrimSpace(reason) == "":
		return nil, errors.New("reason is missing: say why, others will ask")
	}
	return map[string]any{"until": time.Now().Add(lasts).UTC(), "reason": reason}, nil
}

func mutePath(incident string) string { return incidentPath(incident) + "/mute" }

func newIncidentsUnmute() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use: "unmute INCIDENT", Short: "Ends a mute: what is open is told again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.print(cmd, func(ctx context.Context) ([]byte, error) {
				return a.send(ctx, http.MethodDelete, mutePath(args[0]), nil)
			}, tableOf(writeMuted))
		},
	}
	a.formatFlag(cmd)
	a.socketFlag(cmd)
	return cmd
}

func writeMuted(w io.Writer, a *history.Whole) error {
	id, m := safetext.Line(a.Incident.ID), a.Incident.Muted
	text := id + " is not muted.\n"
	if m != nil {
		text = fmt.Sprintf("%s is muted until %s by uid %d%s\n", id, m.Until.UTC().Format(time.RFC3339), m.UID, noted(m.Reason))
	}
	_, err := io.WriteString(w, text)
	return err
}

// writeIncidents is for a reader at a terminal.
func writeIncidents(w io.Writer, a *history.Incidents) error {
	var b strings.Builder
	if len(a.Incidents) == 0 {
		fmt.Fprintf(&b, "No incident is kept on %s that matches.\n", safetext.Line(a.Host))
	} else {
		table(&b, "INCIDENT\tSINCE, UTC\tLASTED\tSTATE\tWHERE\tJOB\tWHAT", func(row func(cells ...string)) {
			for i := range a.Incidents {
				one := &a.Incidents[i]
				row(one.ID, one.Onset.UTC().Format(time.DateTime), verdict.Lasting(one.Lasted(a.At)), one.State(a.At),
					several(one.Nodes), several(one.Jobs), safetext.Clip(one.Headline, 100))
			}
		})
	}
	if a.More {
		fmt.Fprintf(&b, "\nThere are more: ask with --limit, --since, --job or --node.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// several names the first of a list, and how many more there are.
func several(names []string) string {
	switch len(names) {
	case 0:
		return "-"
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s +%d", names[0], len(names)-1)
}

// writeIncident tells it in the words of the terminal exporter.
func writeIncident(w io.Writer, a *history.Whole) error {
	for i := range a.Verdicts {
		a.Verdicts[i] = verdict.Bounded(a.Verdicts[i])
	}
	var b strings.Builder
	if err := verdict.Render(&b, a.Verdicts, verdict.Options{Now: a.At}); err != nil {
		return err
	}
	if seen := a.Incident.Acknowledged; seen != nil {
		fmt.Fprintf(&b, "Acknowledged %s by uid %d%s\n", seen.At.UTC().Format(time.RFC3339), seen.UID, noted(seen.Note))
	}
	if m := a.Incident.Muted; m != nil && a.At.Before(m.Until) {
		fmt.Fprintf(&b, "Muted until %s by uid %d%s\n", m.Until.UTC().Format(time.RFC3339), m.UID, noted(m.Reason))
	}
	if a.Cut {
		b.WriteString("It has more verdicts or revisions than one answer holds.\n")
	}
	if len(a.Revisions) > 0 {
		table(&b, "KEPT, UTC\tREVISION\tVERDICT\tSTATE\tSAID", func(row func(cells ...string)) {
			for i := range a.Revisions {
				v := &a.Revisions[i].Verdict
				row(a.Revisions[i].Kept.UTC().Format(time.DateTime+".000"), strconv.Itoa(v.Revision), v.ID,
					string(v.Status)+", "+string(v.Confidence), safetext.Clip(v.Headline, 100))
			}
		})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func noted(note string) string {
	if note == "" {
		return ""
	}
	return ": " + safetext.Line(note)
}

func writeAcknowledged(w io.Writer, a *history.Whole) error {
	_, err := fmt.Fprintf(w, "%s is acknowledged. It stays open until the fault clears.\n", safetext.Line(a.Incident.ID))
	return err
}

// ask gets an answer of the API and prints it in the form that was asked for.
func ask[T any](cmd *cobra.Command, a *asking, path string, query url.Values, table func(io.Writer, *T) error) error {
	return a.print(cmd, func(ctx context.Context) ([]byte, error) { return a.get(ctx, path, query) }, tableOf(table))
}

// tell is ask for what changes something.
func tell[T any](cmd *cobra.Command, a *asking, path string, body any, table func(io.Writer, *T) error) error {
	return a.print(cmd, func(ctx context.Context) ([]byte, error) { return a.post(ctx, path, body) }, tableOf(table))
}
