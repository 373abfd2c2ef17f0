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
func greet(cmd *cobra.Command, stateDir string, sent []string) error {
	rules, err := patterns.Library()
	if err != nil {
		return err
	}
	report, err := newReport(rules, check.Survey())
	if err != nil {
		return err
	}
	return writeGreeting(cmd, report, stateDir, sent)
}

func writeGreeting(cmd *cobra.Command, report bpfCheckReport, stateDir string, sent []string) error {
	var b strings.Builder
	host, _ := os.Hostname()
	fmt.Fprintf(&b, "tracecore %s on %s, %s\n", version, safetext.Line(host), machine(report.Environment))
	writeWatched(&b, report.Probes)
	writePatterns(&b, report.Patterns, hasGPU(report.Environment))
	if !cmd.Flags().Changed("config") && !cmd.Flags().Changed("set") {
		line(&b, "OTLP in", "127.0.0.1:4317 (gRPC), 127.0.0.1:4318 (HTTP)")
		line(&b, "metrics", "http://127.0.0.1:8888/metrics, health http://127.0.0.1:13133/")
	}
	for _, text := range sent {
		line(&b, "sends", text)
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

// The groups of patterns in a greeting, in order. Nothing has been heard yet: a pattern is
// full when the probes alone feed it.
const (
	groupFull    = "full"
	groupLikely  = "likely at most, until another source speaks"
	groupSilent  = "silent, until their source speaks"
	groupNoGPU   = "silent, no driver of a GPU is loaded"
	groupReduced = string(coverage.Degraded)
	groupBlind   = string(coverage.Blind)
)

func writePatterns(w io.Writer, list []coverage.Pattern, gpu bool) {
	names := map[string][]string{}
	for i := range list {
		group, name := groupOf(&list[i])
		if list[i].GPU && !gpu && group != groupBlind {
			group, name = groupNoGPU, list[i].Name
		}
		names[group] = append(names[group], name)
	}
	for _, group := range []string{groupFull, groupReduced, groupLikely, groupSilent, groupNoGPU, groupBlind} {
		if names[group] != nil {
			line(w, "patterns", fmt.Sprintf("%s: %s", group, strings.Join(names[group], ", ")))
		}
	}
}

// hasGPU reports whether a driver of GPUs is loaded; where that cannot be told, yes.
func hasGPU(facts []check.Fact) bool {
	return !slices.ContainsFunc(facts, func(f check.Fact) bool { return f.ID == check.GPUDriver && f.Value == check.NoGPU })
}

// groupOf is where a pattern stands, and what it says there.
func groupOf(p *coverage.Pattern) (group, name string) {
	awaiting := fmt.Sprintf("%s (%s)", p.Name, strings.Join(p.Awaits, " or "))
	switch {
	case p.State == coverage.Blind:
		return groupBlind, p.Name
	case p.Alone == coverage.Blind:
		return groupSilent, awaiting
	case p.State == coverage.Degraded:
		return groupReduced, p.Name
	case p.Alone == coverage.Degraded:
		return groupLikely, awaiting
	}
	return groupFull, p.Name
}
