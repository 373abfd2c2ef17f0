package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// storyTest is one run of `patterns test`.
type storyTest struct {
	out     io.Writer
	verbose bool
	run     *regexp.Regexp // of the stories to run
	known   *rule.Vocabulary

	ran, failed int
}

func newPatternsTest() *cobra.Command {
	var t storyTest
	var run string
	cmd := &cobra.Command{
		Use:   "test [DIR...]",
		Short: "Runs stories: the built-in ones, or those of your own pattern folders",
		Long: "Loads the pattern files below each DIR beside the built-in ones (one with `replaces:` takes its place) and\n" +
			"runs the stories (*.txtar) below DIR against all of them. Without DIR it runs the built-in stories.\n" +
			"It reports as `go test` does; of a story that did not come out as wanted, lines with - were wanted and\n" +
			"lines with + came. What is wrong in a pattern file is named as file:line:column, with what to do.\n\n" +
			"Exit codes: 0 all stories passed, 1 some did not, or a file cannot be read, 2 wrong usage.",
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var err error
			if t.run, err = regexp.Compile(run); err != nil {
				return usage(fmt.Errorf("--run: %w", err))
			}
			t.out = cmd.OutOrStdout()
			return t.all(dirs)
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "only stories whose path matches this regular expression (also -run)")
	cmd.Flags().BoolVarP(&t.verbose, "verbose", "v", false, "tell each story, and the verdicts that came of it")
	return cmd
}

// likeGoTest lets `patterns test` take -run as it is written for go test; other
// flags have two dashes.
func likeGoTest(args []string) []string {
	if len(args) < 2 || args[0] != "patterns" || args[1] != "test" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-run" || strings.HasPrefix(arg, "-run=") {
			args[i] = "-" + arg
		}
	}
	return args
}

// all tests the folders, or the library without any, and sums up.
func (t *storyTest) all(dirs []string) error {
	began := time.Now()
	var errs []error
	var err error
	if t.known, err = patterns.Vocabulary(); err != nil {
		return err
	}
	if len(dirs) == 0 {
		rules, err := patterns.Library()
		if err != nil {
			return err
		}
		errs = append(errs, t.stories(rules, "", patterns.FS()))
	}
	for _, dir := range dirs {
		if err := t.folder(dir); err != nil {
			fmt.Fprintf(t.out, "FAIL  %s\n", safetext.Line(dir))
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, t.sum(time.Since(began)))...)
}

// folder tests a folder of the operator: first its pattern files, then its stories.
func (t *storyTest) folder(dir string) error {
	rules, err := patterns.Select(patterns.Selection{Rules: []string{dir}})
	if err != nil {
		return err
	}
	err = t.stories(rules, dir, os.DirFS(dir))
	if !errors.Is(err, errNoStories) {
		return err
	}
	own, err := patterns.LoadPaths(dir)
	switch {
	case err != nil:
		return err
	case len(own) == 0:
		return fmt.Errorf("%s: no pattern file (*.yaml) and no stories (*.txtar): name a folder with a pattern", dir)
	}
	return fmt.Errorf("%s: the rules are in order, but there are %w: write one of each fault and of what only looks like it, as %s:\n%s",
		dir, errNoStories, path.Join(dir, "testdata", "fires.txtar"), firstStory(&own[0]))
}

var errNoStories = errors.New("no stories")

// firstStory is what a first story of r can begin with.
func firstStory(r *rule.Rule) string {
	first := &r.Evidence[0]
	record := "log: " + slices.Concat(r.Events(first), first.Metrics)[0]
	if first.OnMetrics() {
		record = "metric: " + first.Metrics[0] + ", value: 1"
	}
	return "What happens on the cluster, in a few sentences.\n-- records.yaml --\nresource: {host.name: node-a}\nrecords:\n" +
		"  - {at: +0s, " + record + ", attributes: {tracecore.trust: proven}}\n-- want.yaml --\nverdicts:\n  - {pattern: " + r.Name + ", confidence: full}"
}

// sum says how it went, and returns an error unless all is well.
func (t *storyTest) sum(took time.Duration) error {
	if t.failed > 0 {
		fmt.Fprintf(t.out, "FAIL  %s\n", seconds(took))
		return fmt.Errorf("%d of %d stories did not come out as wanted", t.failed, t.ran)
	}
	if t.ran > 0 {
		fmt.Fprintf(t.out, "%s passed  %s\n", told(t.ran), seconds(took))
	}
	return nil
}

func told(stories int) string {
	if stories == 1 {
		return "1 story"
	}
	return fmt.Sprintf("%d stories", stories)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// stories runs each story below a folder, in order of its path.
func (t *storyTest) stories(rules []rule.Rule, dir string, fsys fs.FS) error {
	found, before := 0, t.ran
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".txtar" {
			return err
		}
		if found++; t.run.MatchString(name) {
			t.one(rules, fsys, dir, name)
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("read stories: %w", err)
	case found == 0:
		return errNoStories
	case t.ran == before:
		return fmt.Errorf("no story of %d matches --run %s", found, t.run)
	}
	return nil
}

// one runs a story and prints a line about it, and what was wrong.
func (t *storyTest) one(rules []rule.Rule, fsys fs.FS, dir, name string) {
	began := time.Now()
	archive, err := fs.ReadFile(fsys, name)
	var result story.Result
	if err == nil {
		result, err = story.Run(rules, t.known, path.Join(dir, name), archive)
	}
	if err != nil {
		result.Diff = err.Error()
	}
	t.ran++
	word := "ok  "
	if !result.Passed() {
		word = "FAIL"
		t.failed++
	}
	fmt.Fprintf(t.out, "%s  %s  %s\n", word, safetext.Line(path.Join(dir, name)), seconds(time.Since(began)))
	if t.verbose {
		t.indented(strings.TrimSpace(result.Comment))
		for _, v := range result.Verdicts {
			t.indented(inALine(v))
		}
	}
	t.indented(result.Diff)
}

// inALine is a verdict in a line.
func inALine(v verdict.Verdict) string {
	return fmt.Sprintf("=> %s (%s, %s, %s): %s", v.Pattern, v.Role, v.Confidence, v.Status, v.Headline)
}

func (t *storyTest) indented(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(t.out, "      %s\n", safetext.Line(strings.TrimSuffix(line, "\n")))
	}
}
