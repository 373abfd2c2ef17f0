package identityextension

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// ErrorMode says what a probe that does not work does to the collector.
type ErrorMode string

const (
	// ErrorModePropagate stops the collector when not every start and exit can be seen.
	ErrorModePropagate ErrorMode = "propagate"
	// ErrorModeIgnore goes on with what is left, if only /proc, and sets the
	// component's status and a metric.
	ErrorModeIgnore ErrorMode = "ignore"
)

// Config of the extension.
type Config struct {
	// ProcRoot is where the host's /proc is mounted; empty means HOST_PROC from
	// the environment, else /proc.
	ProcRoot string `mapstructure:"proc_root"`
	// Retention is how long a process is known after its exit.
	Retention time.Duration `mapstructure:"retention"`
	// MaxProcesses bounds how many processes are known, living and dead.
	MaxProcesses int `mapstructure:"max_processes"`
	// ScanInterval is the time between two readings of /proc where BPF cannot be used.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// DrillSecret is the file by which drills prove what they are: it is made when there
	// is none. Empty: every fault counts as a real one, also that of a drill.
	DrillSecret string `mapstructure:"drill_secret"`
	// Pin is a folder in a BPF file system, such as /sys/fs/bpf/tracecore. There the probe
	// outlives this process: what happens until the next start is told then, as late.
	// Empty: nowhere, and what an earlier process has pinned in that folder is removed.
	Pin string `mapstructure:"pin"`
	// ErrorMode says what happens when the best hook cannot be used.
	ErrorMode ErrorMode `mapstructure:"error_mode"`
}

// Bounds of Config. A known process takes about half a KiB.
const (
	minProcesses    = 1024
	maxProcesses    = 1 << 20
	minScanInterval = 100 * time.Millisecond
)

func createDefaultConfig() component.Config {
	return &Config{
		Retention:    identity.DefaultRetention,
		MaxProcesses: identity.DefaultMaxProcesses,
		ScanInterval: identity.DefaultScanInterval,
		ErrorMode:    ErrorModeIgnore,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	var problems []error
	if c.ProcRoot != "" && !filepath.IsAbs(c.ProcRoot) {
		problems = append(problems, fmt.Errorf("proc_root: %q is relative: give the whole path, such as /host/proc", c.ProcRoot))
	}
	if c.DrillSecret != "" && !filepath.IsAbs(c.DrillSecret) {
		problems = append(problems, fmt.Errorf("drill_secret: %q is relative: give the whole path, such as /var/lib/tracecore/drill.secret", c.DrillSecret))
	}
	if c.Pin != "" && !filepath.IsAbs(c.Pin) {
		problems = append(problems, fmt.Errorf("pin: %q is relative: give the whole path, such as /sys/fs/bpf/tracecore", c.Pin))
	}
	if c.Retention <= 0 {
		problems = append(problems, fmt.Errorf("retention: %s: set a time above zero, such as 10m", c.Retention))
	}
	if c.MaxProcesses < minProcesses || c.MaxProcesses > maxProcesses {
		problems = append(problems, fmt.Errorf("max_processes: %d: set %d to %d", c.MaxProcesses, minProcesses, maxProcesses))
	}
	if c.ScanInterval < minScanInterval {
		problems = append(problems, fmt.Errorf("scan_interval: %s: set at least %s", c.ScanInterval, minScanInterval))
	}
	if c.ErrorMode != ErrorModePropagate && c.ErrorMode != ErrorModeIgnore {
		problems = append(problems, fmt.Errorf("error_mode: %q is neither propagate nor ignore", c.ErrorMode))
	}
	return errors.Join(problems...)
}

func (c *Config) options() identity.Options {
	return identity.Options{
		ProcRoot: c.ProcRoot, Retention: c.Retention, MaxProcesses: c.MaxProcesses, ScanInterval: c.ScanInterval, Pin: c.Pin,
	}
}
