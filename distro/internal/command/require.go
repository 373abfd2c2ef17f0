package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/internal/coverage"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// choose finds patterns by name or number. Its error names what may have been
// meant.
func choose(rules []rule.Rule, wanted []string) ([]string, error) {
	var names, known []string
	for i := range rules {
		known = append(known, rules[i].Name)
	}
	var unknown []error
	for _, want := range wanted {
		i := slices.IndexFunc(rules, func(r rule.Rule) bool { return r.Name == want || fmt.Sprint(r.ID) == want })
		if i < 0 {
			unknown = append(unknown, fmt.Errorf("no pattern %q: %s", want, rule.Suggest(want, known)))
			continue
		}
		names = append(names, rules[i].Name)
	}
	return names, errors.Join(unknown...)
}

// requirement is nil when every pattern named is full on this node. Else it says
// of each what is lost, which probe would give it and what to do, and its exit
// code is that of the worst.
func requirement(report bpfCheckReport, names []string) error {
	code := exitOK
	var problems []error
	for _, p := range report.Patterns {
		if !slices.Contains(names, p.Name) || p.State == coverage.Full {
			continue
		}
		switch {
		case p.State == coverage.Blind:
			code = exitUnusable
		case code == exitOK:
			code = exitDegraded
		}
		problems = append(problems, fmt.Errorf("required pattern %s is %s here: %s%s", p.Name, p.State, strings.Join(p.Because, "; "), remedies(report, p.Lacks)))
	}
	if problems == nil {
		return nil
	}
	return exitError{code: code, err: errors.Join(problems...)}
}

// remedies says for each feature that is lacking which probe offers it, and what
// to do about that probe.
func remedies(report bpfCheckReport, lacks []check.Feature) string {
	var b strings.Builder
	for _, p := range report.Probes {
		for _, f := range p.Offers {
			if slices.Contains(lacks, f) {
				fmt.Fprintf(&b, "\n  %s comes from the probe %s: %s", f, p.Probe, safetext.Line(whatToDo(p)))
			}
		}
	}
	return b.String()
}
