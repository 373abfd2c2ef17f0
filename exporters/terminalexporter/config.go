package terminalexporter

import (
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/component"
)

// Config says where and how verdicts are printed.
type Config struct {
	// Stream is "stdout" or "stderr".
	Stream string `mapstructure:"stream"`

	// Color is "auto", "always" or "never". Auto colours a terminal unless
	// NO_COLOR is set or TERM is "dumb".
	Color string `mapstructure:"color"`

	// Format is "text", plain words, or "json", one verdict a line as
	// patterns/verdict/schema.json describes it.
	Format string `mapstructure:"format"`

	// prevent unkeyed literal initialization
	_ struct{}
}

const (
	streamStdout = "stdout"
	streamStderr = "stderr"

	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"

	formatText = "text"
	formatJSON = "json"
)

func createDefaultConfig() component.Config {
	return &Config{Stream: streamStdout, Color: colorAuto, Format: formatText}
}

// Validate names each option with a value that does not exist.
func (c *Config) Validate() error {
	return errors.Join(
		oneOf("stream", c.Stream, streamStdout, streamStderr),
		oneOf("color", c.Color, colorAuto, colorAlways, colorNever),
		oneOf("format", c.Format, formatText, formatJSON),
	)
}

func oneOf(option, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s is %q: set it to one of %q", option, value, allowed)
}
