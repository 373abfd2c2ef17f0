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

	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
)

func newPatternsShow() *cobra.Command {
	var configs []string
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Shows what a pattern looks for: its parameters in force, its guide, its file", Args: cobra.ExactArgs(1),
		Long: "Prints the parameters of a pattern with the value in force, the default, the range and who set it, then its guide\n" +
			"and its file. With --config these are the values that an agent with this configuration runs with; without, the defaults.",
		RunE: func(cmd *cobra.Command, args []string) error {
			detectors, err := configured(cmd.Context(), configs)
			if err != nil {
				return err
			}
			return showPattern(cmd.OutOrStdout(), args[0], detectors)
		},
	}
	cmd.Flags().StringArrayVar(&configs, "config", nil, "configuration of the agent, as for running it; may be repeated")
	return cmd
}

// configured returns the pattern detectors of a configuration by id, or one as it is
// without configuration.
func configured(ctx context.Context, configs []string) (map[string]*patterndetectorprocessor.Config, error) {
	factory := patterndetectorprocessor.NewFactory()
	if len(configs) == 0 {
		return map[string]*patterndetectorprocessor.Config{"": factory.CreateDefaultConfig().(*patterndetectorprocessor.Config)}, nil
	}
	set := settings().ConfigProviderSettings
	set.ResolverSettings.URIs = configs
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
	detectors := map[string]*patterndetectorprocessor.Config{}
	for id, c := range config.Processors {
		if id.Type() == factory.Type() {
			detectors[id.String()] = c.(*patterndetectorprocessor.Config)
		}
	}
	if len(detectors) == 0 {
		return nil, fmt.Errorf("--config has no processor %s, so no pattern runs: add it to a logs pipeline", component.NewID(factory.Type()))
	}
	return detectors, nil
}

// showPattern prints a pattern's parameters as each detector has them, its README and its
// file, which is its specification.
func showPattern(w io.Writer, name string, detectors map[string]*patterndetectorprocessor.Config) error {
	var shown *rule.Rule
	for _, id := range slices.Sorted(maps.Keys(detectors)) {
		r, off, err := find(detectors[id], name)
		switch {
		case err != nil:
			return err
		case off:
			fmt.Fprintf(w, "%s is switched off by patterns::%s::enabled%s\n\n", r.Name, r.Name, of(id))
		case len(r.Parameters) == 0:
			fmt.Fprintf(w, "%s has no parameters%s\n\n", r.Name, of(id))
		default:
			fmt.Fprintf(w, "Parameters of %s%s\n\n", r.Name, of(id))
			showParameters(w, r.Parameters)
		}
		shown = r
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
	return nil, false, usage(fmt.Errorf("no pattern %q: `tracecore patterns list` names them", name))
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
