package command

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// markUsageErrors makes wrong flags and arguments of a command and of those
// below it end with exitUsage, and say what to write.
func markUsageErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return wrongFlag(cmd, err) })
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return wrongArguments(cmd, given)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsageErrors(sub)
	}
}

// parsing is how Go's own parsers end what they say.
var parsing = regexp.MustCompile(`: (?:strconv\.\w+: parsing .*|time: .*)$`)

// wrongFlag says what is wrong with a flag, without the words of Go.
func wrongFlag(cmd *cobra.Command, err error) error {
	text := err.Error()
	var nobody *pflag.NotExistError
	if errors.As(err, &nobody) {
		if given := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(given) > 0 { // it is of a command that there is not
			return needsCommand(cmd, given)
		}
		text += likely(cmd, nobody.GetSpecifiedName())
	}
	if cut := parsing.FindString(text); cut != "" {
		text = strings.TrimSuffix(text, cut) + ": write a whole number"
		if strings.HasPrefix(cut, ": time: ") {
			text = strings.TrimSuffix(text, "a whole number") + "a duration, as 30s, 5m or 2h"
		}
	}
	return usage(fmt.Errorf("%s; see %s --help", text, cmd.CommandPath()))
}

// likely says which flag of cmd is probably meant, "" where none is near.
func likely(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	if help := rule.Suggest("--"+name, names); len(name) > 1 && strings.HasPrefix(help, "did you mean") {
		return ": " + help
	}
	return ""
}

// wrongArguments says what to write in place of arguments that do not fit.
func wrongArguments(cmd *cobra.Command, given []string) error {
	write := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	switch {
	case cmd.HasAvailableSubCommands():
		return needsCommand(cmd, given)
	case len(given) > 0 && write == cmd.CommandPath():
		return usage(fmt.Errorf("%s takes no argument: leave out %q; see %s --help", write, given[0], write))
	default:
		return usage(fmt.Errorf("%s given: write %s; see %s --help", counted(uint64(len(given)), "argument"), write, cmd.CommandPath()))
	}
}

// instead is what those write who are used to other programs.
var instead = map[string]string{
	"version": "write tracecore --version",
	"start":   "write tracecore alone, it runs until it is stopped", "run": "write tracecore alone, it runs until it is stopped",
}

// needsCommand is the whole behaviour of a command that only holds others.
func needsCommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if len(args) > 0 {
		help := rule.Suggest(args[0], names)
		if !cmd.HasParent() {
			help = cmp.Or(instead[args[0]], help)
		}
		return usage(fmt.Errorf("unknown command %q for %q: %s; see %s --help", args[0], cmd.CommandPath(), help, cmd.CommandPath()))
	}
	return usage(errors.New(cmd.CommandPath() + ": which one? use " + strings.Join(names, ", ") + "; see " + cmd.CommandPath() + " --help"))
}
