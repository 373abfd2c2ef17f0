package command

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/distro/internal/replay"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/verdict"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
)

// replayFlags are the options of replay as they are given.
type replayFlags struct {
	format, host, job, boot, zone string
	year                          int
	lateness                      time.Duration
	rules                         []string
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE|DIR...",
		Short: "Gives recordings to the patterns and prints the verdicts; no root, no collector",
		Long: "Reads recordings, merges their records by event time, and prints the verdicts that a running tracecore\n" +
			"would have come to. Each FILE (- is standard input), and each file below a DIR, is recognized by what it holds:\n\n" +
			"  OTLP logs and metrics   JSON, a message to a line or whole documents; the file exporter's protobuf\n" +
			"  saved kernel logs       dmesg (also -T, -x, -r, --json, --time-format iso), journalctl -k -o json,\n" +
			"                          short-monotonic, short-iso or short; kern.log of a syslog daemon;\n" +
			"                          GPU, link, PCIe, memory and storage faults, and OOM kills\n" +
			"  Flight Recorder dumps   as PyTorch writes them, pickle or JSON, a file for each rank\n\n" +
			"each as it is, and but for dumps, compressed by gzip or zstd. Input that cannot be read is named with its place and skipped.\n\n" +
			"Exit codes: 0 all was read, 4 some of it could not be read (verdicts come from the rest), 3 none of it could,\n" +
			"2 wrong usage, 1 internal error. Verdicts do not change the exit code.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error { return f.run(cmd, paths) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.format, "output", "o", "text", "text or json, one verdict to a line")
	f.recordingFlags(cmd)
	return cmd
}

// recordingFlags are about how recordings are read.
func (f *replayFlags) recordingFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.host, "host", "", "host of kernel logs that name none (default: the file's name up to its first dot)")
	flags.StringVar(&f.job, "job", "", "job of Flight Recorder dumps")
	flags.StringVar(&f.boot, "boot-time", "", "when the machine of a kernel log with only time since boot was booted, as in 2026-11-21T07:00:00Z")
	flags.StringVar(&f.zone, "zone", "UTC", "time zone of times that name none, as in Europe/Berlin")
	flags.IntVar(&f.year, "year", 0, "year of times that name none")
	flags.DurationVar(&f.lateness, "lateness", defaultLateness(), "how much older than the newest a record may be and still count")
	flags.StringSliceVar(&f.rules, "rules", nil, "files and folders of your own pattern files, beside the built-in ones")
}

func (f *replayFlags) run(cmd *cobra.Command, paths []string) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	progress := newProgress(cmd.ErrOrStderr(), paths)
	say := func(err error) { progress.say("tracecore: " + err.Error()) }
	options.Stdin, options.Bad, options.Note, options.Report = cmd.InOrStdin(), say, say, progress.report
	if options.Show, err = f.show(cmd.OutOrStdout(), progress); err != nil {
		return err
	}
	result, err := replay.Run(cmd.Context(), paths, options)
	progress.clear()
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if err := f.progressOfRanks(cmd, result.Dumps); err != nil {
		return err
	}
	summarize(cmd.ErrOrStderr(), &result, f.lateness)
	switch {
	case result.Unread == 0:
		return nil
	case result.Records == 0:
		return exitError{code: exitUnusable}
	}
	return exitError{code: exitDegraded}
}

// progressOfRanks prints how far the ranks are whose dumps gave no verdict: beside the
// verdicts as text, and not among JSON.
func (f *replayFlags) progressOfRanks(cmd *cobra.Command, lines []string) error {
	w := cmd.OutOrStdout()
	if f.format == "json" {
		w = cmd.ErrOrStderr()
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(w, "Flight Recorder dumps: %s\n", safetext.Line(line)); err != nil {
			return err
		}
	}
	if len(lines) > 0 {
		_, err := fmt.Fprintln(w, "Dumps do not show what runs outside of collectives; those of Gloo have no sends and receives.")
		return err
	}
	return nil
}

func (f *replayFlags) options() (replay.Options, error) {
	o := replay.Options{Host: f.host, Job: f.job, Year: f.year, Lateness: f.lateness}
	if f.lateness <= 0 {
		return o, usage(fmt.Errorf("--lateness %s: give a time above zero, such as 15s", f.lateness))
	}
	var err error
	if f.boot != "" {
		if o.Boot, err = time.Parse(time.RFC3339Nano, f.boot); err != nil {
			return o, usage(fmt.Errorf("--boot-time %s: write it as in 2026-11-21T07:00:00Z", f.boot))
		}
	}
	if o.Zone, err = time.LoadLocation(f.zone); err != nil {
		return o, usage(fmt.Errorf("--zone %s: %w: write it as in Europe/Berlin, or UTC", f.zone, err))
	}
	if o.Rules, err = patterns.Select(patterns.Selection{Rules: f.rules}); err != nil {
		return o, fmt.Errorf("--rules: %w", err)
	}
	return o, nil
}

// show returns how verdicts are printed.
func (f *replayFlags) show(w io.Writer, p *progress) (func([]verdict.Verdict) error, error) {
	print, known := map[string]func([]verdict.Verdict) error{
		"text": func(verdicts []verdict.Verdict) error {
			return verdict.Render(w, verdicts, verdict.Options{Color: colorful(w)})
		},
		"json": func(verdicts []verdict.Verdict) error { return printVerdicts(w, verdicts) },
	}[f.format]
	if !known {
		return nil, usage(fmt.Errorf("-o %s: no such format: use text or json", f.format))
	}
	return func(verdicts []verdict.Verdict) error {
		p.clear()
		if err := print(verdicts); err != nil {
			return fmt.Errorf("print verdicts: %w", err)
		}
		return nil
	}, nil
}

// colorful decides as https://no-color.org asks.
func colorful(w io.Writer) bool {
	return atTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func printVerdicts(w io.Writer, verdicts []verdict.Verdict) error {
	for _, incident := range verdict.Incidents(verdicts) {
		for _, v := range incident {
			if _, err := w.Write(append(verdict.ToJSON(v), '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

// summarize says what was read and which part did not count. Standard output has
// the verdicts alone.
func summarize(w io.Writer, r *replay.Result, lateness time.Duration) {
	agents := ""
	if at := (&history.Status{Agents: r.Agents.Counts(r.Last)}); at.Agents.All() > 0 {
		agents = "; agents at its end: " + at.AgentsInWords()
	}
	fmt.Fprintf(w, "%s, %s, %s%s\n", counted(uint64(r.Files), "file"), counted(r.Records, "record"), counted(uint64(r.Verdicts), "verdict"), agents)
	for _, note := range []struct {
		count uint64
		what  string
		text  string
	}{
		{r.Engine.Late, "record", fmt.Sprintf("too late, more than %s older than others, not counted: --lateness takes them in", lateness)},
		{r.Engine.Unkeyed, "time", "a record met a pattern's condition, but lacked an attribute that the pattern joins by (host, node, pid, job), and was no evidence for it" + such(r.Engine.UnkeyedBy)},
		{r.Engine.EvalErrors, "condition", "could not be evaluated on a record" + such(r.Engine.EvalError)},
		{
			r.Engine.EvictedWaiting + r.Engine.EvictedVerdicts + r.Engine.EvictedSeries + r.Engine.EvictedRecent,
			"part", "of the patterns' state evicted: replay less at once",
		},
		{r.Other, "message", "of traces or profiles skipped: patterns do not look at them"},
	} {
		if note.count > 0 {
			fmt.Fprintf(w, "%s %s\n", counted(note.count, note.what), note.text)
		}
	}
	if text := unreadOf(r); text != "" {
		fmt.Fprintln(w, text)
	}
}

// such names the first of what is counted.
func such(first string) string {
	if first == "" {
		return ""
	}
	return "; the first: " + first
}

// unreadOf says of how much nothing is known; "" where all was read.
func unreadOf(r *replay.Result) string {
	if r.Unread == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s could not be read, or not all of it", r.Unread, counted(uint64(r.Files), "file"))
}

// counted is "1 file" or "3 files".
func counted(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// defaultLateness is that of the pattern detector.
func defaultLateness() time.Duration {
	return patterndetectorprocessor.NewFactory().CreateDefaultConfig().(*patterndetectorprocessor.Config).Lateness
}
