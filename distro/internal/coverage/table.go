package coverage

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// kernel is the column of what the probes of tracecore see.
const kernel = "kernel (eBPF)"

//go:embed others.yaml
var othersYAML []byte

// origin is a source of signals beside the kernel, and what it gives.
type origin struct {
	name  string
	gives []string
}

// loadOrigins reads the embedded list, in its own order.
func loadOrigins() ([]origin, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(othersYAML, &document); err != nil {
		return nil, fmt.Errorf("others.yaml: %w", err)
	}
	var origins []origin
	pairs := document.Content[0].Content
	for i := 0; i < len(pairs); i += 2 {
		o := origin{name: pairs[i].Value}
		if err := pairs[i+1].Decode(&o.gives); err != nil {
			return nil, fmt.Errorf("others.yaml: %s: %w", o.name, err)
		}
		origins = append(origins, o)
	}
	return origins, nil
}

func (o origin) has(name string) bool {
	return slices.ContainsFunc(o.gives, func(given string) bool {
		prefix, all := strings.CutSuffix(given, "*")
		return name == given || all && strings.HasPrefix(name, prefix)
	})
}

// Table shows which pattern reads which source, as Markdown: the evidence that
// each source gives, and what the pattern can conclude when only the kernel speaks.
func Table(rules []rule.Rule) (string, error) {
	sources, err := LoadSources()
	if err != nil {
		return "", err
	}
	origins, err := loadOrigins()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	columns := []string{kernel}
	for _, o := range origins {
		columns = append(columns, o.name)
	}
	fmt.Fprintf(&b, "| id | pattern | %s | with the kernel alone |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+3))
	for i := range rules {
		cells, err := sources.cells(&rules[i], origins)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %d | %s | %s |\n", rules[i].ID, rules[i].Name, strings.Join(cells, " | "))
	}
	return b.String(), nil
}

// cells are the evidence of a rule by where it comes from, and what the kernel's
// part of it is worth alone.
func (s Sources) cells(r *rule.Rule, origins []origin) ([]string, error) {
	cells := make([][]string, 1+len(origins))
	ofKernel := map[string]bool{}
	for i := range r.Evidence {
		e := &r.Evidence[i]
		for _, name := range slices.Concat(r.Events(e), e.Metrics) {
			column := slices.IndexFunc(origins, func(o origin) bool { return o.has(name) }) + 1
			if _, ours := s[name]; ours {
				column, ofKernel[e.Name] = 0, true
			} else if column == 0 {
				return nil, fmt.Errorf("pattern %s reads %s, which stands neither in sources.yaml nor in others.yaml: say where it comes from", r.Name, name)
			}
			if !slices.Contains(cells[column], e.Name) {
				cells[column] = append(cells[column], e.Name)
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
