package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/distro/internal/replay"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/ranks"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// compareFlags are the options of compare as they are given.
type compareFlags struct {
	replayFlags
	out     string
	history asking
}

func newCompare() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compares two recordings, reports or runs: what is new, how long ranks stood, who is named",
		Long: "Compares what the patterns say of A and of B: how long ranks stood and by what cause, incidents that only one has, ranks\n" +
			"and nodes that are named more often. A and B are what replay reads, or JSON as report and replay -o json write it. A name\n" +
			"that is no file here is a run: `tracecore jobs` lists them in its column RUN, of this machine or of the tracecore at\n" +
			"--address.\n\n" +
			"Exit codes: 0 compared, 4 compared, but some of the input could not be read, 3 all of A or of B could not, 2 wrong usage,\n" +
			"1 no such run, tracecore is not reachable, or internal error.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, paths []string) error { return f.run(cmd, paths) },
	}
	cmd.Flags().StringVarP(&f.out, "output", "o", "", "file to write: NAME.html, NAME.json or NAME.txt (default: text on standard output)")
	f.history.addressFlag(cmd)
	f.recordingFlags(cmd)
	return cmd
}

var compareWriters = map[string]func(io.Writer, incidentview.Comparison) error{
	".html": incidentview.WriteCompareHTML,
	".json": incidentview.WriteCompareJSON,
	".txt":  incidentview.WriteCompareText,
}

func (f *compareFlags) run(cmd *cobra.Command, paths []string) error {
	form, known := compareWriters[strings.ToLower(filepath.Ext(f.out))]
	switch {
	case slices.Contains(paths, replay.Stdin):
		return usage(errors.New("compare reads files: give one for each of A and B"))
	case f.out == "":
		form = incidentview.WriteCompareText
	case !known:
		return usage(fmt.Errorf("-o %q: name the file to write as NAME.html, NAME.json or NAME.txt", f.out))
	}
	var sides [2]incidentview.Side
	unread := false
	for i, path := range paths {
		side, damaged, err := f.side(cmd, path)
		if err != nil {
			return err
		}
		sides[i], unread = side, unread || damaged
	}
	c := incidentview.Compare(sides[0], sides[1])
	var err error
	if f.out == "" {
		err = form(cmd.OutOrStdout(), c)
	} else {
		err = writeFile(f.out, func(w io.Writer) error { return form(w, c) })
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the comparison: %w", err)
	case unread:
		return exitError{code: exitDegraded}
	}
	return nil
}

// side is what one path holds.
func (f *compareFlags) side(cmd *cobra.Command, path string) (side incidentview.Side, unread bool, err error) {
	if !isPath(path) {
		side, err = f.history.runSide(cmd.Context(), path)
		return side, false, err
	}
	side.Name = filepath.Base(path)
	v, verdicts, err := readIncident(path)
	switch {
	case err != nil:
		return side, false, err
	case v.ID != "":
		side.Incidents = []incidentview.View{v}
		return side, false, nil
	}
	if len(verdicts) == 0 {
		var result replay.Result
		if verdicts, result, err = f.play(cmd, []string{path}); err != nil {
			return side, false, err
		}
		if result.Unread > 0 && result.Records == 0 {
			return side, false, exitError{code: exitUnusable}
		}
		side.First, side.Last, unread = result.First, result.Last, result.Unread > 0
		for _, text := range problems(&result) {
			side.Notes = append(side.Notes, side.Name+": "+text)
		}
		if err := f.steps(cmd.Context(), path, &side); err != nil {
			return side, false, err
		}
	}
	for _, incident := range verdict.Incidents(verdicts) {
		v := incidentview.Build(incident, incidentview.Options{Now: time.Now(), Version: version})
		if side.Last.After(side.First) {
			v = v.Within(side.First, side.Last)
		}
		side.Incidents = append(side.Incidents, v)
	}
	return side, unread, nil
}

// steps counts the steps of training that a recording tells of: those of the job that made
// most.
func (f *compareFlags) steps(ctx context.Context, path string, side *incidentview.Side) error {
	quiet, err := f.quietly()
	if err != nil {
		return err
	}
	book, of := ranks.NewBook(ranks.DefaultMost), ranks.Recorded()
	err = replay.Scan(ctx, []string{path}, quiet, func(logs plog.Logs, _ pmetric.Metrics) { book.Logs(logs, of) })
	for _, told := range book.Steps() {
		if s := told.Steps; s.Count > side.Steps && s.Each > 0 {
			side.Steps, side.StepTime = s.Count, time.Duration(s.Each*float64(time.Second))
		}
	}
	return err
}

// quietly are the options for reading once more what was read: what is wrong with it was told.
func (f *replayFlags) quietly() (replay.Options, error) {
	o, err := f.options()
	o.Bad, o.Note, o.Report = func(error) {}, func(error) {}, func(replay.Progress) {}
	return o, err
}

// play gives a recording to the patterns and returns all verdicts; what is wrong with it is
// told.
func (f *replayFlags) play(cmd *cobra.Command, paths []string) ([]verdict.Verdict, replay.Result, error) {
	options, err := f.options()
	if err != nil {
		return nil, replay.Result{}, err
	}
	progress := newProgress(cmd.ErrOrStderr(), paths)
	say := func(err error) { progress.say("tracecore: " + err.Error()) }
	options.Bad, options.Note, options.Report = say, say, progress.report
	var verdicts []verdict.Verdict
	left := 0
	options.Show = func(more []verdict.Verdict) error {
		room := min(len(more), mostKept-len(verdicts))
		verdicts, left = append(verdicts, more[:room]...), left+len(more)-room
		return nil
	}
	result, err := replay.Run(cmd.Context(), paths, options)
	progress.clear()
	if err != nil {
		return nil, result, fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	if left > 0 {
		progress.say(counted(uint64(left), "verdict") + " beyond the first " + counted(mostKept, "verdict") + " left out: give less at once")
	}
	return verdicts, result, nil
}
