package coverage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/distro/internal/attributes"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// kernel is the column of what the probes of tracecore see.
const kernel = "kernel (eBPF)"

// rdmaPorts is the column of what the receiver of the kernel log reads beside its probe.
const rdmaPorts = "RDMA ports"

// columns are the sources beside the kernel, in the order of the table: by name, the
// emitters that are one source to an operator.
var columns = []struct {
	name     string
	emitters []string
}{
	{"NVML or DCGM", []string{"gpu"}},
	{"node_exporter", []string{"node_exporter"}},
	{"Flight Recorder", []string{"ncclfr", "rankjoin"}},
	{"Kubernetes", []string{"k8sevents"}},
	{"container logs", []string{"container logs"}},
	{"training code", []string{"training code"}},
	{rdmaPorts, []string{"kernelevents"}},
}

// columnsOf are the indexes of the columns of a signal, 0 for the kernel's; none for a signal
// of nobody. What a probe gives and its own receiver tells has that one alone. What another
// emitter makes of it has its column, too: it comes without the probe as well.
func columnsOf(signal attributes.Signal) (at []int) {
	if signal.Feature != "" {
		at = append(at, 0)
	}
	for i, c := range columns {
		is := func(emitter string) bool { return slices.Contains(c.emitters, emitter) }
		isNot := func(emitter string) bool { return !is(emitter) }
		if c.name == rdmaPorts && signal.Feature != "" {
			continue
		}
		if slices.ContainsFunc(signal.Emitters, is) && (signal.Feature == "" || !slices.ContainsFunc(signal.Emitters, isNot)) {
			return append(at, i+1)
		}
	}
	return at
}

// Table shows which pattern reads which source, as Markdown: the evidence that
// each source gives, and what the pattern can conclude when only the kernel speaks.
func Table(rules []rule.Rule) (string, error) {
	known, err := attributes.LoadVocabulary()
	if err != nil {
		return "", err
	}
	names := []string{kernel}
	for _, c := range columns {
		names = append(names, c.name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| id | pattern | %s | with the kernel alone |\n|%s\n", strings.Join(names, " | "), strings.Repeat(" --- |", len(names)+3))
	for i := range rules {
		cells, err := cells(&rules[i], known)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %d | %s | %s |\n", rules[i].ID, rules[i].Name, strings.Join(cells, " | "))
	}
	return b.String(), nil
}

// cells are the evidence of a rule by where it comes from, and what the kernel's
// part of it is worth alone.
func cells(r *rule.Rule, known *attributes.Vocabulary) ([]string, error) {
	cells := make([][]string, 1+len(columns))
	ofKernel := map[string]bool{}
	for i := range r.Evidence {
		e := &r.Evidence[i]
		for _, name := range slices.Concat(r.Events(e), e.Metrics) {
			signal, found := known.Events[name]
			if !found {
				signal = known.Metrics[name]
			}
			from := columnsOf(signal)
			if len(from) == 0 {
				return nil, fmt.Errorf("pattern %s reads %s of %v, which has no column: add one to columns", r.Name, name, signal.Emitters)
			}
			for _, at := range from {
				ofKernel[e.Name] = ofKernel[e.Name] || at == 0
				if !slices.Contains(cells[at], e.Name) {
					cells[at] = append(cells[at], e.Name)
				}
			}
		}
	}
	out := make([]string, 0, len(cells)+1)
	for _, names := range cells {
		out = append(out, strings.Join(names, ", "))
	}
	return append(out, worth(r, ofKernel)), nil
}

// worth is the best verdict of a rule when only this evidence can be seen.
func worth(r *rule.Rule, seen map[string]bool) string {
	holds := func(name string) bool { return seen[name] }
	switch {
	case r.Full.Eval(holds):
		return string(Full)
	case r.Partial.Eval(holds):
		return "partial"
	}
	return string(Blind)
}
