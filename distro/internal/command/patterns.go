package command

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

func newPatterns() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "patterns",
		Short: "The catalogue of patterns, the test of their stories, and the rule language",
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
		&cobra.Command{
			Use: "reference", Short: "Prints every key of the rule language, for your own pattern files", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := cmd.OutOrStdout().Write(rule.Reference())
				return err
			},
		},
	)
	return cmd
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
