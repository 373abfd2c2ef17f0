package command

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/internal/coverage"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// bpfCheckSchema names the shape of the JSON; bpf-check.schema.json beside this
// file describes it. A change that breaks a reader takes the next number.
const bpfCheckSchema = "tracecore.bpf-check/1"

//go:embed bpf-check.schema.json
var bpfCheckSchemaJSON []byte

// bpfCheckReport is what bpf-check says.
type bpfCheckReport struct {
	Schema      string             `json:"schema"`
	Version     string             `json:"version"` // of tracecore
	Status      check.Status       `json:"status"`
	Environment []check.Fact       `json:"environment"`
	Probes      []check.Probe      `json:"probes"`
	Features    []coverage.Feature `json:"features"`
	Patterns    []coverage.Pattern `json:"patterns"`
}

// bpfCheckFlags are the options of bpf-check as they are given.
type bpfCheckFlags struct {
	format     string
	require    []string
	reportOnly bool
	schema     bool
}

func newBPFCheck() *cobra.Command {
	var f bpfCheckFlags
	cmd := &cobra.Command{
		Use:   "bpf-check",
		Short: "Says what this kernel allows: loads, attaches and fires every probe",
		Long: "Loads, attaches and fires every probe with a harmless cause (a marker line in the kernel log, a child\n" +
			"process, a child killed for want of memory in a throw-away cgroup, a child that hangs on a throw-away FUSE\n" +
			"file system, a loopback connection, functions of its own that look like those of CUDA, NCCL and Python, a\n" +
			"thread that sleeps), and says which hook each got, why not a better one, and which patterns that leaves full, degraded or blind.\n\n" +
			"Exit codes: 0 every probe works, 4 some do not, 3 none does, 2 wrong usage, 1 internal error.\n" +
			"With --require the patterns named decide instead: 0 all of them are full, 4 one is degraded, 3 one is blind.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.format, "output", "o", "table", "table or json")
	flags.StringSliceVar(&f.require, "require", nil, "patterns (names or numbers) that must be full here; whatever else is missing does not matter then")
	flags.BoolVar(&f.reportOnly, "report-only", false, "end with exit code 0 whatever the probes do, for an init container that must not block")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON schema of -o json and check nothing")
	return cmd
}

func (f *bpfCheckFlags) run(cmd *cobra.Command) error {
	if f.schema {
		_, err := cmd.OutOrStdout().Write(bpfCheckSchemaJSON)
		return err
	}
	if f.reportOnly && len(f.require) > 0 {
		return usage(errors.New("--require and --report-only contradict each other: give one of them"))
	}
	print, known := map[string]func(io.Writer, bpfCheckReport) error{"table": printTable, "json": printJSON}[f.format]
	if !known {
		return usage(fmt.Errorf("-o %s: no such format: use table or json", f.format))
	}
	rules, err := patterns.Library()
	if err != nil {
		return err
	}
	wanted, err := choose(rules, f.require)
	if err != nil {
		return usage(fmt.Errorf("--require: %w", err))
	}
	report, err := newReport(rules, check.Run(cmd.Context()))
	if err != nil {
		return err
	}
	if err := print(cmd.OutOrStdout(), report); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	switch {
	case f.reportOnly:
		return nil
	case len(wanted) > 0:
		return requirement(report, wanted)
	}
	return statusError(report.Status)
}

// newReport puts beside the probes what they stand on and what they are for.
func newReport(rules []rule.Rule, probes []check.Probe) (bpfCheckReport, error) {
	sources, err := coverage.LoadSources()
	if err != nil {
		return bpfCheckReport{}, err
	}
	return bpfCheckReport{
		Schema: bpfCheckSchema, Version: version, Status: check.StatusOf(probes),
		Environment: check.Environment(os.DirFS("/")), Probes: probes,
		Features: sources.Features(rules, probes), Patterns: sources.Of(rules, check.Delivered(probes)),
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
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(safetext.JSON(text), '\n'))
	return err
}
