package healthcheckextension

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/extension"

	"github.com/tracecoreai/tracecore/extensions/healthcheckextension/internal/metadata"
)

// Config of the extension.
type Config struct {
	confighttp.ServerConfig `mapstructure:",squash"`
	// Path that is answered.
	Path string `mapstructure:"path"`
	// MaxConnections are open at once; beyond, the oldest of the user or address that has most
	// is closed.
	MaxConnections int `mapstructure:"max_connections"`
}

// Validate implements component.ConfigValidator.
func (c *Config) Validate() error {
	switch {
	case c.NetAddr.Endpoint == "":
		return errors.New("endpoint is empty: write an address, such as 127.0.0.1:13133")
	case !strings.HasPrefix(c.Path, "/"):
		return errors.New(`path must begin with "/"`)
	case c.MaxConnections < 1:
		return errors.New("max_connections must be 1 or more")
	case c.ReadHeaderTimeout <= 0 || c.ReadTimeout <= 0 || c.WriteTimeout <= 0 || c.IdleTimeout <= 0:
		return errors.New("read_header_timeout, read_timeout, write_timeout and idle_timeout must be more than 0: a connection without a limit is held for good")
	}
	return nil
}

// A question is a few bytes, and so is its answer.
const (
	reading = 5 * time.Second
	idle    = 15 * time.Second
)

func defaultConfig() component.Config {
	c := &Config{ServerConfig: confighttp.NewDefaultServerConfig(), Path: "/", MaxConnections: 256}
	c.NetAddr.Endpoint = "127.0.0.1:13133"
	c.ReadHeaderTimeout, c.ReadTimeout, c.WriteTimeout, c.IdleTimeout = reading, reading, reading, idle
	return c
}

// NewFactory makes the factory of the health_check extension.
func NewFactory() extension.Factory {
	create := func(_ context.Context, settings extension.Settings, config component.Config) (extension.Extension, error) {
		return &health{config: config.(*Config), settings: settings.TelemetrySettings}, nil
	}
	return extension.NewFactory(metadata.Type, defaultConfig, create, metadata.ExtensionStability)
}
