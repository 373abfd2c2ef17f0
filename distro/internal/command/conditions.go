package command

import (
	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/exporters/k8snodeexporter"
	"github.com/tracecoreai/tracecore/internal/apiserver"
)

func newConditions() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conditions",
		Short: "Looks after what tracecore wrote to Kubernetes nodes",
		Args:  cobra.ArbitraryArgs,
		RunE:  needsCommand,
	}
	var connection apiserver.Connection
	remove := &cobra.Command{
		Use:   "remove",
		Short: "Takes every node condition of tracecore off its node, as after an uninstall",
		Long: "Takes every node condition that tracecore wrote off its node, and says which. The chart does so after an\n" +
			"uninstall. Needs the rights to get and list nodes and to patch nodes/status: in a pod those of its service\n" +
			"account, elsewhere those of --kubeconfig.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := connection.Validate(); err != nil {
				return usage(err)
			}
			return k8snodeexporter.Remove(cmd.Context(), connection, cmd.OutOrStdout())
		},
	}
	remove.Flags().StringVar(&connection.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account of the pod)")
	remove.Flags().StringVar(&connection.Context, "context", "", "context of the kubeconfig")
	cmd.AddCommand(remove)
	return cmd
}
