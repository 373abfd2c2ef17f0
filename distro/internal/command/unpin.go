package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

// pins is where agents pin what outlives them, as the chart sets it.
const pins = "/sys/fs/bpf/tracecore"

func newUnpin() *cobra.Command {
	folder := pins
	cmd := &cobra.Command{
		Use:   "unpin",
		Short: "Removes what agents that are gone have pinned in the kernel",
		Long: "Removes the programs and rings that agents with the setting pin have left in a BPF file system, so that a\n" +
			"death while no agent ran is known at the next start. Run it on a node where tracecore will run no more. What a\n" +
			"living agent uses stays. Needs root, and CAP_BPF or CAP_SYS_ADMIN.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(folder) {
				return usage(fmt.Errorf("--folder: %q is relative: give the whole path, such as %s", folder, pins))
			}
			n, err := forgetPins(folder)
			if n > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "removed the pins of %d probes in %s\n", n, folder)
			} else if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "nothing to remove in %s\n", folder)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&folder, "folder", folder, "folder that the setting pin names")
	return cmd
}
