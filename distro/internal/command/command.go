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
	"syscall"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/otelcol"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
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
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit exitError
	if errors.As(err, &exit) && exit.err == nil {
		return exit.code
	}
	fmt.Fprintln(stderr, "tracecore:", safetext.Lines(fmt.Sprint(explain(err))))
	return exitCode(err)
}

// newRoot returns the collector's command with ours added.
func newRoot() *cobra.Command {
	root := otelcol.NewCommand(settings())
	root.Short = "Names what broke in a distributed training run, where and why"
	root.Long = root.Short + ".\n\n" +
		"Without --config it runs its embedded default: every probe this kernel allows, OTLP in on\n" +
		"loopback, verdicts in plain words on the terminal. Lay changes over the default with\n" +
		"--config " + defaultconfig.URI + " --config mine.yaml, or with --set."
	root.SilenceErrors = true
	root.Args = cobra.NoArgs
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		release, err := prepareDefault(cmd)
		if err != nil {
			return err
		}
		defer release()
		defer shedAfterStart()()
		return run(cmd, args)
	}
	for _, sub := range root.Commands() {
		if sub.Flags().Lookup("config") != nil {
			sub.PreRunE = func(cmd *cobra.Command, _ []string) error { return useDefault(cmd) }
		}
	}
	root.AddCommand(newBPFCheck(), newConditions(), newDrill(), newPatterns(), newReplay())
	markUsageErrors(root)
	return root
}

// settings describes the collector that this distribution is.
func settings() otelcol.CollectorSettings {
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
			ResolverSettings: confmap.ResolverSettings{ProviderFactories: factories},
		},
	}
}
