package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/distro/internal/top"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

// printTable writes a report for a reader at a terminal: probes first, then what
// they leave to the patterns, then the facts.
func printTable(w io.Writer, report bpfCheckReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", machine(report.Environment), report.Status)
	table(&b, "PROBE\tHOOK\tFIRED\tSEES", func(row func(cells ...string)) {
		for _, p := range report.Probes {
			row(p.Probe, cmp.Or(p.Rung, "none"), yesNo(p.Fired), p.Sees)
		}
	})
	writeProblems(&b, report.Probes)
	table(&b, "FEATURE\tHERE\tPROBE\tFOR", func(row func(cells ...string)) {
		for _, f := range report.Features {
			row(string(f.ID), yesNo(f.Here), f.Probe, strings.Join(f.Patterns, " "))
		}
	})
	b.WriteByte('\n')
	table(&b, "PATTERN\tNAME\tIS\tALONE\tAWAITS\tBECAUSE", func(row func(cells ...string)) {
		for _, p := range report.Patterns {
			row(fmt.Sprint(p.ID), p.Name, string(p.State), string(p.Alone), cmp.Or(strings.Join(p.Awaits, ", "), "-"), strings.Join(p.Because, "; "))
		}
	})
	b.WriteByte('\n')
	table(&b, "FACT\tVALUE\tMEANS", func(row func(cells ...string)) {
		for _, f := range report.Environment {
			row(f.ID, f.Value, cmp.Or(f.Hint, string(f.State)))
		}
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// table aligns rows under a heading, by the columns that a terminal shows each character in.
func table(w io.Writer, heading string, rows func(row func(cells ...string))) {
	all := [][]string{strings.Split(heading, "\t")}
	rows(func(cells ...string) {
		for i, c := range cells {
			cells[i] = safetext.Line(c)
		}
		all = append(all, cells)
	})
	widths := make([]int, len(all[0]))
	for _, cells := range all {
		for i, c := range cells {
			widths[i] = max(widths[i], top.Width(c))
		}
	}
	for _, cells := range all {
		for i, c := range cells[:len(cells)-1] {
			fmt.Fprint(w, c, strings.Repeat(" ", widths[i]-top.Width(c)+2))
		}
		fmt.Fprintln(w, cells[len(cells)-1])
	}
}

// writeProblems says of each rung that was not taken why, and what to do.
func writeProblems(w io.Writer, probes []check.Probe) {
	for _, p := range probes {
		for _, a := range p.Attempts {
			switch {
			case a.Outcome != probe.OK:
				fmt.Fprintf(w, "  %s %s: %s: %s\n", p.Probe, a.Rung, a.Outcome, safetext.Line(a.Reason))
			case a.Hint != "":
				fmt.Fprintf(w, "  %s %s: works, with a limit:\n", p.Probe, a.Rung)
			}
			if a.Hint != "" {
				fmt.Fprintf(w, "    %s\n", safetext.Line(a.Hint))
			}
		}
		if p.Unproven != "" {
			fmt.Fprintf(w, "  %s: %s\n", p.Probe, safetext.Line(p.Unproven))
		}
		if p.Error != "" && p.Rung != "" || p.Error != "" && len(p.Attempts) == 0 {
			fmt.Fprintf(w, "  %s: %s\n", p.Probe, safetext.Line(p.Error))
		}
	}
	fmt.Fprintln(w)
}

// machine is the kernel and architecture in one phrase.
func machine(facts []check.Fact) string {
	value := map[string]string{}
	for _, f := range facts {
		value[f.ID] = f.Value
	}
	return fmt.Sprintf("Linux %s on %s", safetext.Line(value["kernel.release"]), safetext.Line(value["kernel.arch"]))
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
