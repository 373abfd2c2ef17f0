// Package defaultconfig holds the configuration that tracecore runs without
// one, as a configuration provider. `tracecore:default` is the configuration, and
// ${tracecore:state-dir} the folder its state lives in. ${tracecore:host-name} is
// the host.name that the receivers report, for records that have to join with
// theirs. So an operator can lay changes over the default:
// --config tracecore:default --config mine.yaml.
package defaultconfig

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"go.opentelemetry.io/collector/confmap"

	"github.com/tracecoreai/tracecore/internal/thishost"
)

// URI names the default configuration on the command line.
const URI = scheme + ":default"

const (
	scheme      = "tracecore"
	stateDirURI = scheme + ":state-dir"
	hostNameURI = scheme + ":host-name"
)

// StateDirVariable is the environment variable that overrides the state folder.
const StateDirVariable = "TRACECORE_STATE_DIR"

//go:embed default.yaml
var defaultYAML []byte

// NewFactory returns the factory of the provider.
func NewFactory() confmap.ProviderFactory {
	return confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return provider{} })
}

type provider struct{}

func (provider) Scheme() string { return scheme }

func (provider) Shutdown(context.Context) error { return nil }

func (provider) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	switch uri {
	case URI:
		return confmap.NewRetrievedFromYAML(defaultYAML)
	case stateDirURI:
		dir, err := StateDir()
		if err != nil {
			return nil, err
		}
		return confmap.NewRetrieved(dir)
	case hostNameURI:
		name, err := thishost.Name()
		if err != nil {
			return nil, err
		}
		return confmap.NewRetrieved(name)
	}
	return nil, fmt.Errorf("%s: no such configuration; there is %s, ${%s} and ${%s}", uri, URI, stateDirURI, hostNameURI)
}

// StateDir returns the folder for what must survive a restart: the variable
// TRACECORE_STATE_DIR, else /var/lib/tracecore for root, else tracecore in the
// user's state folder (XDG Base Directory Specification, $XDG_STATE_HOME).
func StateDir() (string, error) {
	if dir := os.Getenv(StateDirVariable); dir != "" {
		return absolute(StateDirVariable, dir)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/tracecore", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		dir, err := absolute("XDG_STATE_HOME", dir)
		return filepath.Join(dir, "tracecore"), err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("state folder: %w; set %s to a folder this user may write", err, StateDirVariable)
	}
	return filepath.Join(home, ".local", "state", "tracecore"), nil
}

func absolute(variable, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("state folder: %s=%q is relative; give an absolute path", variable, dir)
	}
	return dir, nil
}
