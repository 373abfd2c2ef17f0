package command

import "github.com/spf13/cobra"

// helpOn refuses help on a command that is not there.
func helpOn(root, help *cobra.Command) {
	help.Run = nil
	help.RunE = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return needsCommand(cmd, rest)
		}
		cmd.InitDefaultHelpFlag()
		return cmd.Help()
	}
}

// plainHelp says in our words what the collector's own commands and flags do.
func plainHelp(root *cobra.Command) {
	for name, does := range map[string][2]string{
		"validate":     {"Checks a configuration, and the pattern files that it names, without running it", ""},
		"components":   {"Lists the components that a configuration can name", ""},
		"featuregate":  {"Lists the feature gates of the collector", ""},
		"print-config": {"Prints the configuration that results", "Prints the configuration that results from --config, --set and --to. Secrets are left out, but for --mode=unredacted."},
	} {
		cmd := named(root, name)
		cmd.Short, cmd.Long = does[0], does[1]
	}
	for _, cmd := range append(root.Commands(), root) {
		for name, usage := range map[string]string{
			"config":        "`FILE` of the configuration, or a URI; may be repeated, each is laid over those before (without: tracecore:default)",
			"set":           "`KEY=VALUE` laid over the configuration, as processors.patterndetector.lateness=20s; may be repeated",
			"feature-gates": "`GATES` of the collector to switch on, or off (-GATE), with commas between; tracecore featuregate lists them",
			"mode":          "`MODE`: redacted or unredacted",
			"format":        "`FORMAT`: yaml or json",
			"validate":      "refuse a configuration with a mistake",
		} {
			if flag := cmd.Flags().Lookup(name); flag != nil && cmd.Flags().Lookup("set") != nil {
				flag.Usage = usage
				if name == "config" || name == "feature-gates" {
					flag.DefValue = ""
				}
			}
		}
	}
}
