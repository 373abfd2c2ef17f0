package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/distro/internal/coverage"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns"
)

// greet tells who starts tracecore at a terminal what it watches and with which
// hook, what it cannot and what to do about that, and where to look. It goes to
// standard error: standard output is for verdicts. The probes are opened and
// closed once for it; the receivers then open them the same way.
func greet(cmd *cobra.Command, stateDir string) error {
	rules, err := patterns.Library()
	if err != nil {
		return err
	}
	report, err := newReport(rules, check.Survey())
	if err != nil {
		return err
	}
	return writeGreeting(cmd, report, stateDir)
}

func writeGreeting(cmd *cobra.Command, report bpfCheckReport, stateDir string) error {
	var b strings.Builder
	host, _ := os.Hostname()
	fmt.Fprintf(&b, "tracecore %s on %s, %s\n", version, safetext.Line(host), machine(report.Environment))
	writeWatched(&b, report.Probes)
	writePatterns(&b, report.Patterns)
	if !cmd.Flags().Changed("config") && !cmd.Flags().Changed("set") {
		line(&b, "OTLP in", "127.0.0.1:4317 (gRPC), 127.0.0.1:4318 (HTTP)")
		line(&b, "metrics", "http://127.0.0.1:8888/metrics, health http://127.0.0.1:13133/")
	}
	line(&b, "state", stateDir)
	if report.Status != check.OK {
		line(&b, "more", "`tracecore bpf-check` says what this machine allows, and why not more")
	}
	b.WriteString("Verdicts follow as faults happen; `tracecore drill xid`, as root in another shell, shows one. Ctrl-C ends.\n\n")
	_, err := io.WriteString(cmd.ErrOrStderr(), b.String())
	return err
}

func line(w io.Writer, label, text string) { fmt.Fprintf(w, "  %-9s %s\n", label, safetext.Line(text)) }

// writeWatched lists what works with its hook, then what does not with its
// reason, which ends with what to do.
func writeWatched(w io.Writer, probes []check.Probe) {
	for _, p := range probes {
		if p.Works() {
			line(w, "watches", fmt.Sprintf("%s (%s: %s)", p.Sees, p.Probe, p.Rung))
		}
	}
	for _, p := range probes {
		if !p.Works() {
			line(w, "misses", p.Sees+": "+whatToDo(p))
			continue
		}
		if p.Unproven != "" {
			line(w, "limited", p.Sees+": "+p.Unproven)
		}
		for _, a := range p.Attempts {
			if a.Outcome == probe.OK && a.Hint != "" {
				line(w, "limited", p.Sees+": "+a.Hint)
			}
		}
	}
}

// whatToDo is why nothing that the probe says is proven, else the hint of the last
// hook tried; bpf-check shows them all.
func whatToDo(p check.Probe) string {
	if p.Unproven != "" {
		return p.Unproven
	}
	for _, a := range slices.Backward(p.Attempts) {
		if a.Hint != "" {
			return a.Hint
		}
	}
	return p.Error
}

func writePatterns(w io.Writer, list []coverage.Pattern) {
	names := map[coverage.State][]string{}
	for _, p := range list {
		names[p.State] = append(names[p.State], p.Name)
	}
	for _, state := range []coverage.State{coverage.Full, coverage.Degraded, coverage.Blind} {
		if names[state] != nil {
			line(w, "patterns", fmt.Sprintf("%s: %s", state, strings.Join(names[state], ", ")))
		}
	}
}
