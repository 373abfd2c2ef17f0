package command

import (
	"fmt"
	"io"
	"maps"
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
		newPatternsShow(),
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
