package command

import (
	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/distro/internal/drill"
)

// newDrill has one command for each drill that can be made here.
func newDrill() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Makes a harmless real fault on this node and shows the verdict and its delay",
		Long: "Makes a harmless real fault on this node, takes it the whole way (kernel, probe, receiver, patterns) in a\n" +
			"pipeline of its own, and shows the verdict and how long it took. A tracecore that runs beside it sees the\n" +
			"same fault and knows by the secret in its state folder that it is a drill. Each drill takes away what it made,\n" +
			"also when it is interrupted; when it is killed, what it made dies with it. Needs root.",
		Args: cobra.ArbitraryArgs,
		RunE: needsCommand,
	}
	for _, d := range drill.All() {
		cmd.AddCommand(&cobra.Command{
			Use:   d.Name,
			Short: "Shows the verdict when " + d.Short,
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return d.Run(cmd.Context(), cmd.OutOrStdout())
			},
		})
	}
	return cmd
}
