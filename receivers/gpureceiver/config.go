package gpureceiver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig    `mapstructure:",squash"`
	metadata.MetricsBuilderConfig `mapstructure:",squash"`

	// Source is what the GPUs are read through.
	Source Source `mapstructure:"source"`
	// NVML and DCGM are what concerns one source alone.
	NVML NVMLConfig `mapstructure:"nvml"`
	DCGM DCGMConfig `mapstructure:"dcgm"`

	// ErrorMode says what GPUs that cannot be read at the start do to the collector.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`
	// Identity is the id of the identity extension that knows which process is
	// which rank. Without it a process on a GPU has its pid alone.
	Identity *component.ID `mapstructure:"identity"`
	// Helper is the program that loads the library. By default the one beside the
	// collector's own file, else in PATH.
	Helper string `mapstructure:"helper"`

	// CollectionInterval is the time between two readings.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// CallTimeout is how long a call of the library may take before it hangs.
	CallTimeout time.Duration `mapstructure:"call_timeout"`
	// RetryInterval is the time between two attempts to load a library, and to reach
	// a host engine that did not answer.
	RetryInterval time.Duration `mapstructure:"retry_interval"`
}

// Source is what GPUs are read through.
type Source string

// The sources.
const (
	// Auto is DCGM where a host engine answers, else NVML.
	Auto Source = "auto"
	// NVML is NVIDIA's Management Library, a part of the driver.
	NVML Source = "nvml"
	// DCGM is a host engine of NVIDIA's Data Center GPU Manager.
	DCGM Source = "dcgm"
)

// NVMLConfig is what concerns NVML alone.
type NVMLConfig struct {
	// Library is the file of the library; by default libnvidia-ml.so.1, as the
	// dynamic linker finds it.
	Library string `mapstructure:"library"`
}

// DCGMConfig is what concerns DCGM alone.
type DCGMConfig struct {
	// Endpoint of the host engine: host:port, unix:///path, or embedded for one
	// within the helper. By default the local engine, LocalEngine.
	Endpoint string `mapstructure:"endpoint"`
	// LibraryFolder is where libdcgm.so.4 is, if the dynamic linker does not know.
	LibraryFolder string `mapstructure:"library_folder"`
	// Profiling reads what the profiling module measures. Another profiler on the
	// node (Nsight) cannot run at the same time.
	Profiling bool `mapstructure:"profiling"`
	// Health has the engine watch the health of the GPUs.
	Health bool `mapstructure:"health"`
	// Policies are the conditions for which a policy is set where nobody set one,
	// with DCGM's own thresholds and no action. Violations of all that are set are
	// told.
	Policies []string `mapstructure:"policies"`
}

// LocalEngine is where a host engine listens by default.
const LocalEngine = "127.0.0.1:5555"

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		Source: Auto, DCGM: DCGMConfig{Profiling: true, Health: true}, ErrorMode: record.Ignore,
		CollectionInterval: 10 * time.Second, CallTimeout: 10 * time.Second, RetryInterval: time.Minute,
	}
}

// minInterval bounds the settings: reading a GPU takes 40 ms for its PCIe rates
// alone.
const minInterval = 100 * time.Millisecond

// Validate reports settings that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check(), c.checkSource(), c.DCGM.checkEndpoint(), c.DCGM.checkPolicies()}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"collection_interval", c.CollectionInterval}, {"call_timeout", c.CallTimeout}, {"retry_interval", c.RetryInterval},
	} {
		if d.value < minInterval {
			problems = append(problems, fmt.Errorf("%s: %v is shorter than %v", d.name, d.value, minInterval))
		}
	}
	return errors.Join(problems...)
}

// checkSource refuses an embedded engine that starts where another does not answer:
// asking whether it answers would start it.
func (c *Config) checkSource() error {
	switch {
	case c.Source != Auto && c.Source != NVML && c.Source != DCGM:
		return fmt.Errorf("source: %q is none of %s, %s, %s", c.Source, Auto, NVML, DCGM)
	case c.Source == Auto && c.DCGM.Endpoint == dcgm.Embedded:
		return fmt.Errorf("dcgm::endpoint: an embedded engine always answers: set source to %s, or leave the endpoint out", DCGM)
	}
	return nil
}

func (d *DCGMConfig) checkEndpoint() error {
	path, socket := strings.CutPrefix(d.Endpoint, "unix://")
	if d.Endpoint == "" || d.Endpoint == dcgm.Embedded || socket && strings.HasPrefix(path, "/") {
		return nil
	}
	_, port, err := net.SplitHostPort(d.Endpoint)
	if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 {
		return fmt.Errorf("dcgm::endpoint: %q is neither host:port nor unix:///path nor embedded", d.Endpoint)
	}
	return nil
}

func (d *DCGMConfig) checkPolicies() error {
	for _, policy := range d.Policies {
		if !slices.Contains(dcgm.Policies(), policy) {
			return fmt.Errorf("dcgm::policies: %q is none of %s", policy, strings.Join(dcgm.Policies(), ", "))
		}
	}
	return nil
}

// engine is where the host engine is.
func (d *DCGMConfig) engine() string {
	if d.Endpoint == "" {
		return LocalEngine
	}
	return d.Endpoint
}
