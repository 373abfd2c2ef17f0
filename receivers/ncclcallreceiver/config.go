package ncclcallreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclcallreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows the rank processes.
	// Without it there is nobody to watch.
	Identity *component.ID `mapstructure:"identity"`
	// Storage is the id of the storage extension that keeps what is known of processes for the
	// next start. Without it each start learns their pauses anew.
	Storage *component.ID `mapstructure:"storage"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
	// ScanInterval is the time between two looks at the communicators.
	ScanInterval time.Duration `mapstructure:"scan_interval"`
	// LookInterval is the time between two looks for processes that have NCCL.
	LookInterval time.Duration `mapstructure:"look_interval"`
	// Patience is how long a process that used a communicator may make no call before
	// that is told: that long at least, and twice its usual pause.
	Patience time.Duration `mapstructure:"patience"`
	// ArrivalInterval is the time between two records of when the ranks of a communicator
	// make their calls. Windows end on all hosts at the same time of the clock.
	ArrivalInterval time.Duration `mapstructure:"arrival_interval"`
	// MaxLibraries bounds the files of NCCL, RCCL and libcuda that are watched.
	MaxLibraries int `mapstructure:"max_libraries"`
	// MaxSteppedCalls is how many calls a second a process may make, on average, of a library
	// whose functions the kernel steps over; above, they are not counted for a while.
	MaxSteppedCalls float64 `mapstructure:"max_stepped_calls"`
	// MaxProcesses bounds the processes of ranks that are looked at in one look.
	MaxProcesses int `mapstructure:"max_processes"`
}

// Bounds of Config.
const (
	minScanInterval = 100 * time.Millisecond
	minLookInterval = time.Second
	minPatience     = time.Second
	maxPatience     = time.Hour
	minArrivals     = time.Second
	maxArrivals     = time.Hour
	maxLibraries    = 63 // slots of the probe
	maxProcesses    = 1 << 16
	maxSteppedCalls = 50_000 // as many as of any library
)

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), ErrorMode: record.Propagate,
		// Half a second is what a stop is seen late. A scan costs 0.1 to 0.5 ms.
		ScanInterval: 500 * time.Millisecond,
		// A rank needs longer than this from loading NCCL to its first collective.
		LookInterval: 5 * time.Second,
		// A healthy pause is told as well, and taken back, until it is known that the
		// process makes such pauses.
		Patience:        2 * time.Second,
		ArrivalInterval: 30 * time.Second,
		// Up to 20 µs each: 0.5 % of a core.
		MaxSteppedCalls: 250,
		MaxLibraries:    48, MaxProcesses: 4096,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	if c.ScanInterval < minScanInterval {
		problems = append(problems, fmt.Errorf("scan_interval: %s: set at least %s", c.ScanInterval, minScanInterval))
	}
	if c.LookInterval < minLookInterval {
		problems = append(problems, fmt.Errorf("look_interval: %s: set at least %s", c.LookInterval, minLookInterval))
	}
	if c.Patience < minPatience || c.Patience > maxPatience {
		problems = append(problems, fmt.Errorf("patience: %s: set %s to %s", c.Patience, minPatience, maxPatience))
	}
	if c.ArrivalInterval < minArrivals || c.ArrivalInterval > maxArrivals {
		problems = append(problems, fmt.Errorf("arrival_interval: %s: set %s to %s", c.ArrivalInterval, minArrivals, maxArrivals))
	}
	if c.MaxLibraries < 1 || c.MaxLibraries > maxLibraries {
		problems = append(problems, fmt.Errorf("max_libraries: %d: set 1 to %d", c.MaxLibraries, maxLibraries))
	}
	if c.MaxSteppedCalls < 1 || c.MaxSteppedCalls > maxSteppedCalls {
		problems = append(problems, fmt.Errorf("max_stepped_calls: %g: set 1 to %d", c.MaxSteppedCalls, maxSteppedCalls))
	}
	if c.MaxProcesses < 1 || c.MaxProcesses > maxProcesses {
		problems = append(problems, fmt.Errorf("max_processes: %d: set 1 to %d", c.MaxProcesses, maxProcesses))
	}
	return errors.Join(problems...)
}
