package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/internal/coverage"
	"github.com/tracecoreai/tracecore/patterns"
)

// bpfCheckSchema names the shape of the JSON; bpf-check.schema.json beside this
// file describes it. A change that breaks a reader takes the next number.
const bpfCheckSchema = "tracecore.bpf-check/1"

// bpfCheckReport is what bpf-check says.
type bpfCheckReport struct {
	Schema      string             `json:"schema"`
	Version     string             `json:"version"` // of tracecore
	Status      check.Status       `json:"status"`
	Environment []check.Fact       `json:"environment"`
	Probes      []check.Probe      `json:"probes"`
	Patterns    []coverage.Pattern `json:"patterns"`
}

func newBPFCheck() *cobra.Command {
	format, reportOnly := "table", false
	cmd := &cobra.Command{
		Use:   "bpf-check",
		Short: "Says what this kernel allows: loads, attaches and fires every probe",
		Long: "Loads, attaches and fires every probe with a harmless cause (a marker line in the kernel log, a child\n" +
			"process, a child killed for want of memory in a throw-away cgroup), and says which hook each got, why\n" +
			"not a better one, and which patterns that leaves full, degraded or blind.\n\n" +
			"Exit codes: 0 every probe works, 4 some do not, 3 none does, 2 wrong usage, 1 internal error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			print, known := map[string]func(io.Writer, bpfCheckReport) error{"table": printTable, "json": printJSON}[format]
			if !known {
				return usage(fmt.Errorf("-o %s: no such format: use table or json", format))
			}
			report, err := newReport(check.Run(cmd.Context()))
			if err != nil {
				return err
			}
			if err := print(cmd.OutOrStdout(), report); err != nil {
				return fmt.Errorf("print the report: %w", err)
			}
			if reportOnly {
				return nil
			}
			return statusError(report.Status)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "table or json")
	cmd.Flags().BoolVar(&reportOnly, "report-only", false, "end with exit code 0 whatever the probes do, for an init container that must not block")
	return cmd
}

// newReport puts beside the probes what they stand on and what they are for.
func newReport(probes []check.Probe) (bpfCheckReport, error) {
	sources, err := coverage.LoadSources()
	if err != nil {
		return bpfCheckReport{}, err
	}
	rules, err := patterns.Library()
	if err != nil {
		return bpfCheckReport{}, err
	}
	return bpfCheckReport{
		Schema: bpfCheckSchema, Version: version, Status: check.StatusOf(probes),
		Environment: check.Environment(os.DirFS("/")), Probes: probes, Patterns: sources.Of(rules, check.Delivered(probes)),
	}, nil
}

func statusError(status check.Status) error {
	switch status {
	case check.OK:
		return nil
	case check.Degraded:
		return exitError{code: exitDegraded}
	}
	return exitError{code: exitUnusable}
}

func printJSON(w io.Writer, report bpfCheckReport) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
