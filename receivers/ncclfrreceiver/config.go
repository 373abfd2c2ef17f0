package ncclfrreceiver

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Include names files, folders and globs of dumps. PyTorch writes
	// TORCH_NCCL_DEBUG_INFO_TEMP_FILE with the rank at its end.
	Include []string `mapstructure:"include"`
	// PollInterval is how often they are looked for.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// GiveUpAfter is how long after its last change a file that ends too early
	// is taken as still being written.
	GiveUpAfter time.Duration `mapstructure:"give_up_after"`
	// MaxAge leaves out dumps that are older when they are first seen, such as
	// those of last week's job.
	MaxAge time.Duration `mapstructure:"max_age"`
	// MaxFileSize, MaxValues and MaxFiles bound what is read.
	MaxFileSize int64 `mapstructure:"max_file_size"`
	MaxValues   int   `mapstructure:"max_values"`
	MaxFiles    int   `mapstructure:"max_files"`

	// JobID is the job of all dumps; JobPattern a regular expression on the path
	// whose first group is the job. Without either, the identity extension says.
	JobID      string `mapstructure:"job_id"`
	JobPattern string `mapstructure:"job_pattern"`
	// Shared says that dumps of other hosts lie here too: a record then has a
	// host only where the dump or the identity extension names it.
	Shared bool `mapstructure:"shared"`
	// Identity is the id of the identity extension, which knows job and process
	// of a rank that lives on this host: dumps are then also looked for where each rank
	// writes them, in its own root.
	Identity *component.ID `mapstructure:"identity"`
	// Storage is the id of the storage extension that remembers which dumps were
	// read. Without it a restart reads those younger than MaxAge again.
	Storage *component.ID `mapstructure:"storage"`
}

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(),
		// The default of PyTorch (FlightRecorder.cpp, DebugInfoWriter::getWriter).
		Include:      []string{"/tmp/nccl_trace_rank_*"},
		PollInterval: time.Second,
		GiveUpAfter:  time.Minute,
		MaxAge:       time.Hour,
		MaxFileSize:  32 << 20,
		MaxValues:    flightrecorder.DefaultLimits.Values,
		MaxFiles:     32_768,
	}
}

// Validate reports settings that cannot work.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Include) == 0 && c.Identity == nil {
		errs = append(errs, errors.New("include names nothing to read: give a folder or a glob, such as /tmp/nccl_trace_rank_*, or an identity extension, which knows where ranks write"))
	}
	for _, pattern := range c.Include {
		if _, err := filepath.Match(pattern, "x"); err != nil {
			errs = append(errs, fmt.Errorf("include: %q: %w: close its brackets", pattern, err))
		}
	}
	for _, option := range []struct {
		name  string
		value int64
	}{
		{"poll_interval", int64(c.PollInterval)},
		{"give_up_after", int64(c.GiveUpAfter)},
		{"max_age", int64(c.MaxAge)},
		{"max_file_size", c.MaxFileSize},
		{"max_values", int64(c.MaxValues)},
		{"max_files", int64(c.MaxFiles)},
	} {
		if option.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than zero: leave it out for the default", option.name))
		}
	}
	if _, err := c.jobPattern(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// jobPattern is nil where there is none.
func (c *Config) jobPattern() (*regexp.Regexp, error) {
	if c.JobPattern == "" {
		return nil, nil
	}
	pattern, err := regexp.Compile(c.JobPattern)
	if err != nil {
		return nil, fmt.Errorf("job_pattern: %w", err)
	}
	if pattern.NumSubexp() < 1 {
		return nil, fmt.Errorf("job_pattern: %q has no group: put brackets around the job id, such as /jobs/([^/]+)/", c.JobPattern)
	}
	return pattern, nil
}

func (c *Config) limits() flightrecorder.Limits {
	limits := flightrecorder.DefaultLimits
	limits.Values = c.MaxValues
	return limits
}
