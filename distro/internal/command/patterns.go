package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/story"
)

func newPatterns() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "patterns",
		Short: "The catalogue of patterns, and the test of their stories",
		Args:  cobra.ArbitraryArgs,
		RunE:  needsCommand,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "list", Short: "Lists the built-in patterns", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return listPatterns(cmd.OutOrStdout()) },
		},
		&cobra.Command{
			Use: "show NAME", Short: "Shows what a pattern looks for, and its file", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return showPattern(cmd.OutOrStdout(), args[0]) },
		},
		newPatternsTest(),
	)
	return cmd
}

func newPatternsTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test [DIR...]",
		Short: "Runs stories: the built-in ones, or those of your own pattern folders",
		Long: "Loads the pattern files below each DIR beside the built-in ones (one of the same name takes its place) and\n" +
			"runs the stories (*.txtar) below DIR against all of them. Without DIR it runs the built-in stories.\n" +
			"Exit code 1 when a story did not come out as wanted.",
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				rules, err := patterns.Library()
				if err != nil {
					return err
				}
				return runStories(cmd.OutOrStdout(), rules, "", patterns.FS())
			}
			var failed []error
			for _, dir := range dirs {
				failed = append(failed, testDir(cmd.OutOrStdout(), dir))
			}
			return errors.Join(failed...)
		},
	}
}

func listPatterns(w io.Writer) error {
	rules, err := patterns.Library()
	if err != nil {
		return err
	}
	table(w, "ID\tNAME\tSYMPTOM\tREADS", func(row func(cells ...string)) {
		for i := range rules {
			r := &rules[i]
			row(fmt.Sprint(r.ID), r.Name, r.Summary, strings.Join(reads(r), " "))
		}
	})
	return nil
}

// reads are the events and metrics that a rule looks at.
func reads(r *rule.Rule) []string {
	names := map[string]bool{}
	for _, e := range r.All() {
		for _, name := range slices.Concat(r.Events(e), e.Metrics) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// showPattern prints a pattern's README and its file, which is its specification.
func showPattern(w io.Writer, name string) error {
	rules, err := patterns.Library()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rules, func(r rule.Rule) bool { return r.Name == name || fmt.Sprint(r.ID) == name })
	if i < 0 {
		return usage(fmt.Errorf("no pattern %q: `tracecore patterns list` names them", name))
	}
	folder := path.Dir(rules[i].File)
	for _, file := range []string{"README.md", path.Base(rules[i].File)} {
		text, err := fs.ReadFile(patterns.FS(), path.Join(folder, file))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", text); err != nil {
			return err
		}
	}
	return nil
}

// testDir runs the stories below a folder against the built-in patterns and
// those below the folder.
func testDir(w io.Writer, dir string) error {
	own, err := patterns.LoadPaths(dir)
	if err != nil {
		return err
	}
	rules, err := patterns.Library()
	if err != nil {
		return err
	}
	rules = slices.DeleteFunc(rules, func(r rule.Rule) bool {
		return slices.ContainsFunc(own, func(o rule.Rule) bool { return o.Name == r.Name })
	})
	rules = append(rules, own...)
	if err := rule.Check(rules); err != nil {
		return err
	}
	return runStories(w, rules, dir, os.DirFS(dir))
}

// runStories prints one line per story, and the difference of each that did not
// come out as wanted.
func runStories(w io.Writer, rules []rule.Rule, dir string, stories fs.FS) error {
	results, err := story.RunDir(rules, stories)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return fmt.Errorf("%s: no stories: write one as *.txtar, as in patterns/gpu_lost/testdata", dir)
	}
	failed := 0
	for _, r := range results {
		verdict := "ok  "
		if !r.Passed() {
			verdict = "FAIL"
			failed++
		}
		fmt.Fprintf(w, "%s  %s\n", verdict, printable(path.Join(dir, r.Name)))
		for diff := range strings.Lines(r.Diff) {
			fmt.Fprintf(w, "      %s\n", printable(strings.TrimSuffix(diff, "\n")))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d stories did not come out as wanted", failed, len(results))
	}
	fmt.Fprintf(w, "%d stories passed\n", len(results))
	return nil
}
