package historyextension

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
)

// Config of the extension.
type Config struct {
	// Directory is the folder of the file. It is made where it is missing, for this user
	// alone.
	Directory string `mapstructure:"directory"`
	// MaxBytes bounds the file. Beyond, incidents give way: first of the machine, pattern
	// and job that have most, what is claimed before what is proven.
	MaxBytes int64 `mapstructure:"max_bytes"`
	// MaxAge is how long an incident is kept after it was last heard of.
	MaxAge time.Duration `mapstructure:"max_age"`
	// HTTP is where questions are answered.
	HTTP HTTPConfig `mapstructure:"http"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// HTTPConfig is the server that answers questions. Nobody changes anything over it.
type HTTPConfig struct {
	confighttp.ServerConfig `mapstructure:",squash"`
	// MaxConnections are open at once; beyond, the oldest of the user or address that has most
	// is closed.
	MaxConnections int `mapstructure:"max_connections"`

	// prevent unkeyed literal initialization
	_ struct{}
}

const (
	leastBytes = 1 << 20
	leastAge   = time.Minute

	// A question is a few bytes; an answer is read from disk and may be megabytes.
	reading = 5 * time.Second
	writing = 30 * time.Second
	idle    = 15 * time.Second
)

func createDefaultConfig() component.Config {
	c := &Config{MaxBytes: 64 << 20, MaxAge: 30 * 24 * time.Hour, HTTP: HTTPConfig{ServerConfig: confighttp.NewDefaultServerConfig(), MaxConnections: 32}}
	c.HTTP.NetAddr.Endpoint = "127.0.0.1:13134"
	c.HTTP.ReadHeaderTimeout, c.HTTP.ReadTimeout, c.HTTP.WriteTimeout, c.HTTP.IdleTimeout = reading, reading, writing, idle
	return c
}

// Validate reports settings that cannot work.
func (c *Config) Validate() error {
	var errs []error
	switch {
	case c.Directory == "":
		errs = append(errs, errors.New("directory is not set: name the folder of the history, such as /var/lib/tracecore/history"))
	case !filepath.IsAbs(c.Directory):
		errs = append(errs, fmt.Errorf("directory: %q is relative: give the whole path, such as /var/lib/tracecore/history", c.Directory))
	}
	if c.MaxBytes < leastBytes {
		errs = append(errs, fmt.Errorf("max_bytes is %d: give %d or more", c.MaxBytes, leastBytes))
	}
	if c.MaxAge < leastAge {
		errs = append(errs, fmt.Errorf("max_age is %s: give %s or more", c.MaxAge, leastAge))
	}
	return errors.Join(errs...)
}

// Validate implements component.ConfigValidator.
func (c *HTTPConfig) Validate() error {
	switch {
	case c.NetAddr.Endpoint == "":
		return errors.New("endpoint is empty: write an address, such as 127.0.0.1:13134")
	case c.MaxConnections < 1:
		return errors.New("max_connections must be 1 or more")
	case c.ReadHeaderTimeout <= 0 || c.ReadTimeout <= 0 || c.WriteTimeout <= 0 || c.IdleTimeout <= 0:
		return errors.New("read_header_timeout, read_timeout, write_timeout and idle_timeout must be more than 0: a connection without a limit is held for good")
	}
	return nil
}
