package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/tracecoreai/tracecore/distro/internal/backend"
	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
	"github.com/tracecoreai/tracecore/processors/rankjoinprocessor"
)

func newPatternsShow() *cobra.Command {
	var configs []string
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Shows what a pattern looks for: its parameters in force, its guide, its file", Args: cobra.ExactArgs(1),
		Long: "Prints the parameters of a pattern with the value in force, the default, the range and who set it, then its guide\n" +
			"and its file. With --config these are the values that an agent with this configuration runs with; without, the defaults.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := configured(cmd.Context(), configs)
			if err != nil {
				return err
			}
			return showPattern(cmd.OutOrStdout(), args[0], c)
		},
	}
	cmd.Flags().StringArrayVar(&configs, "config", nil, "configuration of the agent, as for running it; may be repeated")
	return cmd
}

// judges are the processors of a configuration that have parameters of patterns, by id.
type judges struct {
	detectors map[string]*patterndetectorprocessor.Config
	joins     map[string]*rankjoinprocessor.Config
}

// configured returns the judges of a configuration, or those that are without one.
func configured(ctx context.Context, configs []string) (*judges, error) {
	detector, join := patterndetectorprocessor.NewFactory(), rankjoinprocessor.NewFactory()
	all := &judges{map[string]*patterndetectorprocessor.Config{}, map[string]*rankjoinprocessor.Config{}}
	if len(configs) == 0 {
		all.detectors[""] = detector.CreateDefaultConfig().(*patterndetectorprocessor.Config)
		all.joins[join.Type().String()] = join.CreateDefaultConfig().(*rankjoinprocessor.Config)
		return all, nil
	}
	set := settings(&backend.Backends{}).ConfigProviderSettings
	set.ResolverSettings.URIs = configs
	refuses := refusals(func() []string { return configs })
	set.ResolverSettings.ConverterFactories = append(set.ResolverSettings.ConverterFactories, refuses.converter())
	provider, err := otelcol.NewConfigProvider(set)
	if err != nil {
		return nil, err
	}
	factories, err := components.Factories()
	if err != nil {
		return nil, err
	}
	config, err := provider.Get(ctx, factories)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	for id, c := range config.Processors {
		switch id.Type() {
		case detector.Type():
			all.detectors[id.String()] = c.(*patterndetectorprocessor.Config)
		case join.Type():
			all.joins[id.String()] = c.(*rankjoinprocessor.Config)
		}
	}
	if len(all.detectors) == 0 {
		return nil, fmt.Errorf("--config has no processor %s, so no pattern runs: add it to a logs pipeline", component.NewID(detector.Type()))
	}
	return all, nil
}

// showPattern prints a pattern's parameters as each processor has them, its README and its
// file, which is its specification.
func showPattern(w io.Writer, name string, all *judges) error {
	var shown *rule.Rule
	for _, id := range slices.Sorted(maps.Keys(all.detectors)) {
		r, off, err := find(all.detectors[id], name)
		switch {
		case err != nil:
			return err
		case off:
			fmt.Fprintf(w, "%s is switched off by patterns::%s::enabled%s\n\n", r.Name, r.Name, of(id))
		case len(r.Parameters) == 0:
			fmt.Fprintf(w, "%s has no parameters%s\n\n", r.Name, of(id))
		default:
			fmt.Fprintf(w, "Parameters of %s%s\n\n", r.Name, of(id))
			mine, _ := r.Parameters.Of("", nil)
			showParameters(w, mine)
		}
		shown = r
	}
	if shown.Name == rankjoinprocessor.Pattern {
		for _, id := range slices.Sorted(maps.Keys(all.joins)) {
			its, err := all.joins[id].Parameters()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "Parameters of %s that the processor %s judges by, and where they are set\n\n", shown.Name, id)
			showParameters(w, its)
		}
	}
	return showFiles(w, shown)
}

func of(id string) string {
	if id == "" {
		return ""
	}
	return " in " + id
}

// find returns the pattern as a detector runs it, or as it would if it were not off.
func find(config *patterndetectorprocessor.Config, name string) (r *rule.Rule, off bool, err error) {
	rules, err := config.LoadRules()
	if err != nil {
		return nil, false, err
	}
	library, err := patterns.Library()
	if err != nil {
		return nil, false, err
	}
	called := func(r rule.Rule) bool { return r.Name == name || fmt.Sprint(r.ID) == name }
	if at := slices.IndexFunc(rules, called); at >= 0 {
		return &rules[at], false, nil
	}
	if at := slices.IndexFunc(library, called); at >= 0 {
		return &library[at], true, nil
	}
	var names []string
	for _, r := range slices.Concat(rules, library) {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return nil, false, usage(fmt.Errorf("no pattern %q: %s (tracecore patterns list describes them)", name, rule.Suggest(name, slices.Compact(names))))
}

func showParameters(w io.Writer, parameters rule.Values) {
	table(w, "NAME\tIN FORCE\tDEFAULT\tRANGE\tSET BY\tMEANING", func(row func(cells ...string)) {
		for _, p := range parameters {
			row(p.Name, p.Value, p.Default, p.Range[0]+" to "+p.Range[1], cmp.Or(p.Source, "default"), p.Meaning)
		}
	})
	fmt.Fprintln(w)
}

// showFiles prints the README and the file of a pattern; a file of the operator's has its
// README beside it, if any.
func showFiles(w io.Writer, r *rule.Rule) error {
	folder, file := path.Split(r.File)
	files := patterns.FS()
	if _, err := fs.Stat(files, r.File); err != nil || r.Replaces != "" {
		files, folder = os.DirFS(cmp.Or(folder, ".")), ""
	}
	for _, name := range []string{"README.md", file} {
		text, err := fs.ReadFile(files, path.Join(folder, name))
		if err != nil && name == file {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", text); err != nil {
			return err
		}
	}
	return nil
}
