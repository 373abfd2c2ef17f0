package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
)

// Exit codes of every tracecore command. bpf-check uses them all.
const (
	exitOK       = 0
	exitInternal = 1 // something went wrong that the message names
	exitUsage    = 2 // the command line is wrong
	exitUnusable = 3 // bpf-check: no probe works here; what reads files: none could be read
	exitDegraded = 4 // bpf-check: some probe does not work here; what reads files: some could not; top: an incident is open
)

// exitError carries the exit code a command ends with; without an error the
// command has already said what there is to say.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func usage(err error) error { return exitError{code: exitUsage, err: err} }

func exitCode(err error) int {
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitInternal
}

// explain ends an error of the collector with what an operator can do, where
// the collector's own text does not.
func explain(err error, cmd *cobra.Command) error {
	if wrong := mistaken(""); errors.As(err, &wrong) {
		return wrong
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; another program, perhaps a second tracecore, listens there: stop it, or %s", err, otherPort(err.Error()))
	}
	if nothing.MatchString(err.Error()) && cmd.Flags().Lookup("config") != nil && !usesDefault(cmd) {
		return fmt.Errorf("%w; a file of --config stands alone: lay it over the default by --config %s --config FILE", err, defaultconfig.URI)
	}
	return place(err, cmd)
}

// nothing is how the collector speaks of a configuration with nothing in it that runs.
var nothing = regexp.MustCompile(`no (receiver|exporter) configuration specified|must have at least one pipeline`)

// otherPort says how to move off a port of the default configuration.
func otherPort(text string) string {
	for port, set := range map[string]string{
		":4317":  "receivers.otlp.protocols.grpc.endpoint=127.0.0.1:14317",
		":4318":  "receivers.otlp.protocols.http.endpoint=127.0.0.1:14318",
		":13133": "extensions.health_check.endpoint=127.0.0.1:23133",
		":8888":  "service.telemetry.metrics.level=none",
	} {
		if strings.Contains(text, port+":") {
			return "start with --set=" + set
		}
	}
	return "choose another port in the configuration"
}
