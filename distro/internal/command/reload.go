package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// runner is what a command of cobra does.
type runner func(cmd *cobra.Command, args []string) error

// errReload is why a collector is stopped for the next one.
var errReload = errors.New("another configuration")

// reloading runs a collector, and at SIGHUP another one with the configuration as it then
// is, if check finds nothing wrong with it. The collector's own SIGHUP stops what runs
// before it reads the files: a mistake in them would end the process.
func reloading(run, check runner) runner {
	return func(cmd *cobra.Command, args []string) error {
		whole := cmd.Context()
		for {
			ctx, stop := context.WithCancelCause(whole)
			signals := newSignals(ctx)
			cmd.SetContext(signals)
			var hearing sync.WaitGroup
			hearing.Go(func() { signals.each(func() { reload(cmd, args, check, stop) }) })
			err := run(cmd, args)
			anew := context.Cause(ctx) == errReload //nolint:errorlint // it is set, never wrapped
			stop(nil)
			hearing.Wait()
			if !anew || whole.Err() != nil {
				return err
			}
			if err != nil { // of a component that did not stop in good order
				fmt.Fprintln(cmd.ErrOrStderr(), "tracecore: SIGHUP: stop what ran:", safetext.Lines(err.Error()))
			}
		}
	}
}

// reload stops the collector for the next one if the configuration is good, and says what
// is wrong with it if it is not.
func reload(cmd *cobra.Command, args []string, check runner, stop context.CancelCauseFunc) {
	if err := check(cmd, args); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "tracecore: SIGHUP: what runs goes on, since the configuration has a mistake: mend it, then send SIGHUP again\n%s\n", safetext.Lines(fmt.Sprint(explain(err, cmd))))
		return
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "tracecore: SIGHUP: the configuration is good, it is taken over")
	stop(errReload)
}

// signals is the context that a collector runs under, and hears SIGHUP in its place. While
// the collector starts, the signal is ignored: it would end the process.
type signals struct {
	context.Context
	hangups chan os.Signal
	taken   sync.Once
}

func newSignals(ctx context.Context) *signals {
	signal.Ignore(syscall.SIGHUP)
	return &signals{Context: ctx, hangups: make(chan os.Signal, 1)}
}

// Done implements context.Context. The collector asks for SIGHUP when it has started, which
// ends that it is ignored, and then waits for this: here the signal is taken from it.
func (s *signals) Done() <-chan struct{} {
	if !signal.Ignored(syscall.SIGHUP) {
		s.taken.Do(func() {
			signal.Ignore(syscall.SIGHUP) // by all that asked for it
			signal.Notify(s.hangups, syscall.SIGHUP)
		})
	}
	return s.Context.Done()
}

// each calls f at each signal, until the context is over.
func (s *signals) each(f func()) {
	for {
		select {
		case <-s.Context.Done():
			return
		case <-s.hangups:
			f()
		}
	}
}

// named returns the command below cmd of that name.
func named(cmd *cobra.Command, name string) *cobra.Command {
	commands := cmd.Commands()
	return commands[slices.IndexFunc(commands, func(sub *cobra.Command) bool { return sub.Name() == name })]
}
