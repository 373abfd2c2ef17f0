package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/distro/internal/replay"
	"github.com/tracecoreai/tracecore/distro/internal/top"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// topFlags are the options of top as they are given.
type topFlags struct {
	replayFlags
	asking
	partly bool // not all of the recording could be read
}

func newTop() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top [FILE|DIR...]",
		Short: "Shows live what is broken, who waits for whom, and how the ranks of each job fare",
		Long: "Shows what the tracecore that runs on this machine tells, or the one at --address, each second: the worst incident and\n" +
			"what to do, jobs, their ranks as a grid, who waits for whom, and where ranks stand in their code. Keys are in the last\n" +
			"row; ? explains them. Nothing in it changes a job or a node. With files it shows the end of a recording; they are what\n" +
			"replay reads.\n\n" +
			"It needs 80 columns and 15 rows; where there is less, it shows the incident alone. It uses two of the terminal's 16 colours,\n" +
			"none with NO_COLOR. Where the output is no terminal, or TERM is dumb, it prints the first screen once.\n\n" +
			"Exit codes: 0; where it prints once, 4 if an incident is open (drills do not count), or if not all of a recording could be\n" +
			"read; 3 nothing of a recording could be read, 2 wrong usage, 1 not reachable, or internal error.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error { return f.run(cmd, paths) },
	}
	f.recordingFlags(cmd)
	f.addressFlag(cmd)
	f.socketFlag(cmd)
	return cmd
}

func (f *topFlags) run(cmd *cobra.Command, paths []string) error {
	var source top.Source
	actions := top.Actions{Report: reportBeside}
	if len(paths) > 0 {
		recorded, err := f.recorded(cmd, paths)
		if err != nil {
			return err
		}
		source = recorded
	} else {
		if _, err := siteOf(f.address); err != nil {
			return err
		}
		source = newPoller(&f.asking)
		if loopback(f.address) {
			f.tellers(&actions)
		} else {
			actions.Local = newPoller(&asking{address: historyAddress})
		}
	}
	if out := cmd.OutOrStdout(); !interactive(out) || !interactive(cmd.InOrStdin()) || os.Getenv("TERM") == "dumb" {
		return once(cmd.Context(), out, source, f.partly)
	}
	return watch(cmd, source, actions)
}

// once prints the first screen.
func once(ctx context.Context, w io.Writer, source top.Source, partly bool) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	text, broken, err := top.Once(ctx, source)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if broken || partly {
		return exitError{code: exitDegraded}
	}
	return nil
}

// watch runs the view until its user ends it. Commands that were copied are printed then,
// each alone on its line: not every terminal takes them to its clipboard.
func watch(cmd *cobra.Command, source top.Source, actions top.Actions) error {
	const framesPerSecond = 15
	m := top.New(source, actions, colorful(cmd.OutOrStdout()))
	program := tea.NewProgram(m, tea.WithContext(cmd.Context()), tea.WithInput(cmd.InOrStdin()), tea.WithOutput(cmd.OutOrStdout()), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler())
	_, err := program.Run()
	if err != nil && cmd.Context().Err() == nil {
		return fmt.Errorf("show on the terminal: %w", err)
	}
	for _, command := range m.Copied() {
		fmt.Fprintln(cmd.OutOrStdout(), safetext.Line(command))
	}
	return nil
}

// interactive reports whether keys and screens pass there.
func interactive(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// loopback reports whether an address is of this machine.
func loopback(address string) bool {
	u, err := addressOf(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// reportBeside writes a report of an incident into the folder that one is in.
func reportBeside(v incidentview.View) (string, error) {
	const most = 16
	name := "tracecore-" + filepath.Base(safetext.Clip(v.ID, most)) + ".html"
	return name, writeFile(name, func(w io.Writer) error { return incidentview.WriteHTML(w, v) })
}

// tellers are the actions that the history is told: none where its socket is not there, or not
// for this user.
func (f *topFlags) tellers(actions *top.Actions) {
	socket, err := f.socketPath()
	if err != nil {
		return
	}
	if _, err := os.Stat(socket); err != nil {
		return
	}
	actions.Acknowledge = func(ctx context.Context, id string) error {
		_, err := f.post(ctx, incidentPath(id)+"/acknowledgement", map[string]string{"note": ""})
		return err
	}
	actions.Mute = func(ctx context.Context, id string, lasts time.Duration, reason string) error {
		body, err := muteFor(lasts, reason)
		if err == nil {
			_, err = f.post(ctx, mutePath(id), body)
		}
		return err
	}
	actions.Unmute = func(ctx context.Context, id string) error {
		_, err := f.send(ctx, http.MethodDelete, mutePath(id), nil)
		return err
	}
}

// recorded reads a recording: its verdicts, how its ranks fared, and what was never told.
func (f *topFlags) recorded(cmd *cobra.Command, paths []string) (top.Source, error) {
	if slices.Contains(paths, replay.Stdin) {
		return nil, usage(errors.New("top reads its input twice: give a file, not standard input"))
	}
	verdicts, result, err := f.play(cmd, paths)
	if err != nil {
		return nil, err
	}
	if result.Unread > 0 && result.Records == 0 {
		return nil, exitError{code: exitUnusable}
	}
	quiet, err := f.quietly()
	if err != nil {
		return nil, err
	}
	if len(verdicts) == 0 {
		if verdicts, err = recordedVerdicts(cmd.Context(), paths, quiet); err != nil {
			return nil, err
		}
	}
	book, of := ranks.NewBook(ranks.DefaultMost), ranks.Recorded()
	if err := replay.Scan(cmd.Context(), paths, quiet, func(logs plog.Logs, metrics pmetric.Metrics) {
		book.Logs(logs, of)
		book.Metrics(metrics)
	}); err != nil {
		return nil, err
	}
	feeds := feedsOf(quiet.Rules, &result)
	fed, err := newFeeding(feeds)
	if err != nil {
		return nil, err
	}
	f.partly = result.Unread > 0
	name := filepath.Base(paths[0])
	if more := len(paths) - 1; more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return top.NewRecorded(top.Recording{
		Name: name, At: result.Last, Verdicts: verdicts, Ranks: book, Agents: result.Agents, Feeds: feeds, Unfed: fed.unfed(result.Agents.Working(result.Last)...), Problem: strings.Join(problems(&result), "; "),
		View: func(incident []verdict.Verdict) (incidentview.View, error) {
			v, err := withRecords(cmd.Context(), paths, quiet, incident, &result)
			v.Made.From, v.Made.Hashes = provenance(paths)
			v.Made.Flaws = append(v.Made.Flaws, flaws(&result, f.lateness)...)
			return v, err
		},
	}), nil
}

// problems are what bounds all that is said of a recording.
func problems(r *replay.Result) []string {
	return slices.DeleteFunc(append([]string{unreadOf(r)}, r.Notes...), func(text string) bool { return text == "" })
}

// feedsOf is what a replay heard, as a running tracecore tells it.
func feedsOf(rules []rule.Rule, result *replay.Result) []history.Feed {
	reads := map[[2]string][]string{}
	for i := range rules {
		for _, e := range rules[i].All() {
			reads[[2]string{rules[i].Name, e.Name}] = slices.Concat(rules[i].Events(e), e.Metrics)
		}
	}
	var feeds []history.Feed
	for _, h := range result.Heard {
		f := history.Feed{Pattern: h.Pattern, Evidence: h.Evidence, Reads: reads[[2]string{h.Pattern, h.Evidence}]}
		if h.At > 0 {
			at := time.Unix(0, h.At).UTC()
			f.Last = &at
		}
		feeds = append(feeds, f)
	}
	return feeds
}
