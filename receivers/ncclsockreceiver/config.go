package ncclsockreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/ncclsockreceiver/internal/stall"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig    `mapstructure:",squash"`
	metadata.MetricsBuilderConfig `mapstructure:",squash"`

	// Identity is the id of the identity extension that knows the rank processes.
	// Without it there is nobody to watch.
	Identity *component.ID `mapstructure:"identity"`
	// Storage is the id of the storage extension that keeps what is known of jobs for the
	// next start. Without it each start learns the pauses of a job anew.
	Storage *component.ID `mapstructure:"storage"`
	// ErrorMode says what happens when the probe does not work.
	ErrorMode record.ErrorMode `mapstructure:"error_mode"`

	// SnapshotInterval is the time between two snapshots.
	SnapshotInterval time.Duration `mapstructure:"snapshot_interval"`
	// MetricsInterval is the time between two reports of the metrics.
	MetricsInterval time.Duration `mapstructure:"metrics_interval"`
	// RepeatInterval is the time between two records of one stall.
	RepeatInterval time.Duration `mapstructure:"repeat_interval"`

	Patience Patience `mapstructure:"patience"`
	Phases   Phases   `mapstructure:"phases"`

	// RankPortsFrom is where the ports begin that the kernel chooses
	// (net.ipv4.ip_local_port_range): a connection with both ports there is one
	// between ranks.
	RankPortsFrom uint16 `mapstructure:"rank_ports_from"`

	MaxProcesses uint32 `mapstructure:"max_processes"` // of ranks, looked at in one snapshot
	MaxSockets   uint32 `mapstructure:"max_sockets"`   // in one snapshot
	MaxStalls    int    `mapstructure:"max_stalls"`    // open at a time
	MaxPeers     int    `mapstructure:"max_peers"`     // in metrics, pairs of job and peer address
}

// Patience is how long something may stand before it is a stall.
type Patience struct {
	Halted    time.Duration `mapstructure:"halted"`    // unread bytes of a process that is stopped
	Asleep    time.Duration `mapstructure:"asleep"`    // of one that neither is nor computes
	Computing time.Duration `mapstructure:"computing"` // of one that makes progress
	Notice    time.Duration `mapstructure:"notice"`    // with one that makes progress, until the others are said to wait for it
	Service   time.Duration `mapstructure:"service"`   // unread bytes of RAS and store
	Network   time.Duration `mapstructure:"network"`   // unacknowledged data
	Connect   time.Duration `mapstructure:"connect"`   // connections that do not come about
}

// Phases is how the length of a job's phases is learned.
type Phases struct {
	Factor    float64       `mapstructure:"factor"`    // usual pauses that a silence may last
	Learning  int           `mapstructure:"learning"`  // snapshots with traffic until they are known
	Unlearned time.Duration `mapstructure:"unlearned"` // usual phase until then
	Found     time.Duration `mapstructure:"found"`     // how long a rank that was found silent rests under watch, until then
	Memory    time.Duration `mapstructure:"memory"`    // how long a long one is remembered, at least
}

func createDefaultConfig() component.Config {
	d := stall.Defaults()
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(), MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		ErrorMode: record.Propagate, SnapshotInterval: d.Interval, MetricsInterval: 10 * time.Second, RepeatInterval: d.Repeat,
		Patience:      Patience{Halted: d.Halted, Asleep: d.Asleep, Computing: d.Computing, Notice: d.Notice, Service: d.Service, Network: d.Network, Connect: d.Connect},
		Phases:        Phases{Factor: d.PhaseFactor, Learning: d.PhaseLearning, Unlearned: d.PhaseUnlearned, Found: d.Found, Memory: d.PhaseMemory},
		RankPortsFrom: d.RankPortsFrom, MaxProcesses: 1024, MaxSockets: uint32(d.MaxSockets), MaxStalls: d.MaxStalls, MaxPeers: d.MaxPeers,
	}
}

// options are the thresholds and bounds of the tracker.
func (c *Config) options() stall.Options {
	return stall.Options{
		Interval: c.SnapshotInterval, Repeat: c.RepeatInterval,
		Halted: c.Patience.Halted, Asleep: c.Patience.Asleep, Computing: c.Patience.Computing, Notice: c.Patience.Notice, Service: c.Patience.Service,
		Network: c.Patience.Network, Connect: c.Patience.Connect,
		PhaseFactor: c.Phases.Factor, PhaseLearning: c.Phases.Learning, PhaseUnlearned: c.Phases.Unlearned, Found: c.Phases.Found, PhaseMemory: c.Phases.Memory,
		RankPortsFrom: c.RankPortsFrom, MaxSockets: int(c.MaxSockets), MaxStalls: c.MaxStalls, MaxPeers: c.MaxPeers,
	}
}

// minInterval is the shortest time between two snapshots: below it the snapshots
// of a large node cost more than they tell.
const minInterval = 100 * time.Millisecond

// Validate reports a setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.ErrorMode.Check()}
	refuse := func(bad bool, format string, values ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	refuse(c.SnapshotInterval < minInterval, "snapshot_interval: %v is shorter than %v", c.SnapshotInterval, minInterval)
	refuse(c.MetricsInterval < c.SnapshotInterval, "metrics_interval: %v is shorter than snapshot_interval", c.MetricsInterval)
	refuse(c.RepeatInterval < c.SnapshotInterval, "repeat_interval: %v is shorter than snapshot_interval", c.RepeatInterval)
	refuse(c.Phases.Factor < 1, "phases::factor: %v is less than 1", c.Phases.Factor)
	refuse(c.Phases.Learning < 1, "phases::learning: %d is less than 1", c.Phases.Learning)
	refuse(c.Phases.Unlearned <= 0 || c.Phases.Found <= 0 || c.Phases.Memory <= 0, "phases: unlearned, found and memory must be longer than 0")
	refuse(c.MaxProcesses == 0 || c.MaxSockets == 0 || c.MaxStalls < 1 || c.MaxPeers < 1, "max_processes, max_sockets, max_stalls, max_peers: each must be at least 1")
	for name, d := range map[string]time.Duration{
		"halted": c.Patience.Halted, "asleep": c.Patience.Asleep, "computing": c.Patience.Computing, "notice": c.Patience.Notice,
		"service": c.Patience.Service, "network": c.Patience.Network, "connect": c.Patience.Connect,
	} {
		refuse(d < c.SnapshotInterval, "patience::%s: %v is shorter than snapshot_interval", name, d)
	}
	return errors.Join(problems...)
}
