package filestorageextension

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.opentelemetry.io/collector/component"
)

// Config of the extension.
type Config struct {
	// Directory is the folder of the state. It is made where it is missing, for
	// this user alone.
	Directory string `mapstructure:"directory"`
	// FSync waits with each write until the device has it. Without it the device
	// has each write a second later, and a node that loses its power loses that second.
	FSync bool `mapstructure:"fsync"`
}

func createDefaultConfig() component.Config { return &Config{} }

// Validate reports settings that cannot work.
func (c *Config) Validate() error {
	switch {
	case c.Directory == "":
		return errors.New("directory is not set: name the folder of the state, such as /var/lib/tracecore")
	case !filepath.IsAbs(c.Directory):
		return fmt.Errorf("directory: %q is relative: give the whole path, such as /var/lib/tracecore", c.Directory)
	}
	return nil
}
