// Package command is tracecore's command line: the collector's own commands and
// those that an operator needs beside it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/otelcol"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/internal/backend"
	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/internal/memorylimit"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/internal/safetext/safelog"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver"
)

// version is the version of the distribution; distro/builder-config.yaml has
// the same.
const version = "0.1.0-dev"

// Run executes one command line and returns the exit code of the process. A first
// SIGINT or SIGTERM ends the command in good order, a second one at once. The
// collector's own handling is off: it begins only when everything has started.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if ncclfrreceiver.IsReader() {
		return ncclfrreceiver.Reader()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := memorylimit.Apply(memorylimit.Collector); err != nil {
		fmt.Fprintln(stderr, "tracecore: memory limit of the cgroup:", err, "(set GOMEMLIMIT)")
	}
	root := newRoot()
	root.SetArgs(likeGoTest(args))
	printed := &output{to: stdout}
	root.SetOut(printed)
	if interactive(stdout) {
		root.SetOut(stdout)
	}
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = printed.err
	}
	if err == nil {
		return exitOK
	}
	var exit exitError
	if errors.As(err, &exit) && exit.err == nil {
		return exit.code
	}
	fmt.Fprintln(stderr, "tracecore:", safetext.Lines(fmt.Sprint(explain(err, cmd))))
	return exitCode(err)
}

// newRoot returns the collector's command with ours added.
func newRoot() *cobra.Command {
	var to backend.Backends
	var warns idle
	set := settings(&to)
	var root *cobra.Command
	refuses := refusals(func() []string { return configURIs(root) })
	resolving := &set.ConfigProviderSettings.ResolverSettings
	resolving.ConverterFactories = append(resolving.ConverterFactories, refuses.converter(), warns.converter())
	root = otelcol.NewCommand(set)
	warns.cmd = root
	root.Short = "Names what broke in a distributed training run, where and why"
	root.Long = root.Short + ".\n\n" +
		"Without --config it runs its embedded default: every probe this kernel allows, OTLP in on\n" +
		"loopback, verdicts in plain words on the terminal. Lay changes over the default with\n" +
		"--config " + defaultconfig.URI + " --config mine.yaml, or with --set. --to URL sends verdicts to your\n" +
		"OTLP backend, whatever the configuration."
	to.Register(root.Flags())
	root.Example = "  tracecore --to https://backend:4318\n  tracecore --config tracecore:default --config mine.yaml\n" +
		"  tracecore top\n  journalctl -k -o json | tracecore replay -"
	root.SilenceErrors = true
	root.Args = cobra.NoArgs
	run := reloading(root.RunE, named(root, "validate").RunE)
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if err := to.Read(os.Getenv); err != nil {
			return usage(err)
		}
		release, err := prepareDefault(cmd, &to)
		if err != nil {
			return err
		}
		defer release()
		defer shedAfterStart()()
		defer lookAt(cmd, &to)()
		return run(cmd, args)
	}
	for _, sub := range root.Commands() {
		if sub.Flags().Lookup("config") != nil {
			to.Register(sub.Flags())
			sub.PreRunE = func(cmd *cobra.Command, _ []string) error {
				if err := to.Read(os.Getenv); err != nil {
					return usage(err)
				}
				if err := knownMode(cmd); err != nil {
					return usage(err)
				}
				return useDefault(cmd)
			}
		}
	}
	root.AddCommand(newBPFCheck(), newCompare(), newConditions(), newDrill(), newIncidents(), newJobs(), newPatterns(), newReplay(), newIncidentReport(), newStacks(), newStatus(), newTop(), newUnpin())
	plainHelp(root)
	root.InitDefaultHelpCmd()
	helpOn(root, named(root, "help"))
	markUsageErrors(root)
	return root
}

// knownMode checks the mode and the format of print-config, which the collector looks at only
// once it has read the configuration, as one of its own errors.
func knownMode(cmd *cobra.Command) error {
	for _, flag := range []struct {
		name  string
		known []string
	}{{"mode", []string{"redacted", "unredacted"}}, {"format", []string{"yaml", "json"}}} {
		value, err := cmd.Flags().GetString(flag.name)
		if err == nil && !slices.Contains(flag.known, strings.ToLower(value)) { // else it is of another command, or good
			return fmt.Errorf("--%s %s: no such %s: use %s; see %s --help", flag.name, value, flag.name, strings.Join(flag.known, " or "), cmd.CommandPath())
		}
	}
	return nil
}

// lookAt tries the backends beside the start, and returns what ends that.
func lookAt(cmd *cobra.Command, to *backend.Backends) (end func()) {
	ctx, cancel := context.WithCancel(cmd.Context())
	var looking sync.WaitGroup
	looking.Go(func() { to.Look(ctx, cmd.ErrOrStderr()) })
	return func() { cancel(); looking.Wait() }
}

// settings describes the collector that this distribution is, with what is added to its
// configuration.
func settings(to *backend.Backends) otelcol.CollectorSettings {
	providers := components.Providers()
	factories := make([]confmap.ProviderFactory, 0, len(providers))
	for _, path := range slices.Sorted(maps.Keys(providers)) {
		factories = append(factories, providers[path])
	}
	return otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{
			Command: "tracecore", Version: version,
			Description: "names what broke in a distributed training run",
		},
		Factories:               components.Factories,
		DisableGracefulShutdown: true, // the context of Run ends it
		LoggingOptions:          []zap.Option{safelog.Option()},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{ProviderFactories: factories, ConverterFactories: []confmap.ConverterFactory{to.Converter()}},
		},
	}
}
