package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/internal/backend"
)

// useDefault makes a command without --config use the embedded default.
func useDefault(cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("config")
	if flag.Changed {
		return nil
	}
	return flag.Value.Set(defaultconfig.URI)
}

// prepareDefault readies what the embedded default needs, when it is in use: its
// state folder, held by one process at a time, and a word to who started it.
// release lets go of the folder.
func prepareDefault(cmd *cobra.Command, to *backend.Backends) (release func(), err error) {
	if err := useDefault(cmd); err != nil {
		return nil, err
	}
	if !usesDefault(cmd) {
		return func() {}, nil
	}
	dir, err := defaultconfig.StateDir()
	if err != nil {
		return nil, err
	}
	if release, err = takeState(cmd, dir); err != nil {
		return nil, err
	}
	if atTerminal(cmd.ErrOrStderr()) {
		err = greet(cmd, dir, to.Lines())
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// errHeld is a state folder that another process works on.
var errHeld = errors.New("another tracecore uses it")

// takeState readies the state folder. One that cannot be made or written, on a full
// disk perhaps, costs the state and not the process: the storage extension tries it
// again every second.
func takeState(cmd *cobra.Command, dir string) (release func(), err error) {
	if err = os.MkdirAll(dir, 0o700); err == nil {
		release, err = lockState(dir)
	}
	if err == nil || errors.Is(err, errHeld) {
		return release, err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "tracecore: state folder: %v; nothing survives a restart until it can be written: make room, or set %s to a folder this user may write\n",
		err, defaultconfig.StateDirVariable)
	return func() {}, nil
}

// atTerminal reports whether somebody reads along: a service is not greeted, and
// starts without opening its probes twice. What is missing stands in its log.
func atTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// usesDefault reports whether the default is among the configurations given.
func usesDefault(cmd *cobra.Command) bool {
	return slices.Contains(configURIs(cmd), defaultconfig.URI)
}

// configURIs are the values of --config. The collector's flag prints them as "[a, b]".
func configURIs(cmd *cobra.Command) []string {
	if ours, err := cmd.Flags().GetStringArray("config"); err == nil {
		return ours
	}
	return strings.Split(strings.Trim(cmd.Flags().Lookup("config").Value.String(), "[]"), ", ")
}
