package identity

import (
	"errors"
	"time"
)

// Name of the probe in reports.
const Name = "identity"

// The rungs, best first.
const (
	RungSignals = "tp_btf/signal_generate"    // as the next, and exits with who sent their signal
	RungTracing = "tp_btf/sched_process_exec" // starts with their environment, exits with their status
	RungNotice  = "raw_tp/sched_process_exec" // starts only; the rest from /proc
	RungScan    = "procfs/scan"               // no BPF: /proc now and then
)

// SeesEnds reports whether a hook tells how processes end: those without BTF do not.
func SeesEnds(rung string) bool { return rung == RungSignals || rung == RungTracing }

// Defaults of Options.
const (
	DefaultRetention    = 10 * time.Minute
	DefaultMaxProcesses = 65536
	DefaultScanInterval = 2 * time.Second
)

// Options choose where the Tracker looks and what it keeps. Zero values mean the
// defaults.
type Options struct {
	// ProcRoot is where the host's /proc is; "" means HOST_PROC from the
	// environment, else /proc.
	ProcRoot string
	// Retention is how long a process is known after its exit.
	Retention time.Duration
	// MaxProcesses bounds how many are known, living and exited.
	MaxProcesses int
	// ScanInterval is the time between two readings of /proc where the kernel
	// gives no events.
	ScanInterval time.Duration
	// Drill reports whether a token proves that a drill started a process then; nil:
	// none does.
	Drill func(token string, start time.Time) bool
	// Pin is the folder in a BPF file system (pin.Root) where what the probe has in the kernel
	// outlives this process, so that the next one knows what happened in between; "": nowhere.
	Pin string
	// Rung forces one rung of the ladder; "" takes the best.
	Rung string
}

func (o Options) withDefaults() (Options, error) {
	if o.Retention < 0 || o.MaxProcesses < 0 || o.ScanInterval < 0 {
		return o, errors.New("open identity: retention, number of processes and scan interval must not be negative: use 0 for the default")
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.MaxProcesses == 0 {
		o.MaxProcesses = DefaultMaxProcesses
	}
	if o.ScanInterval == 0 {
		o.ScanInterval = DefaultScanInterval
	}
	return o, nil
}

// Counters are what the Tracker counts beside probe.Stats.
type Counters struct {
	Processes int // known now, living and exited
	Ranks     int // of these, living ranks and their descendants

	Execs        uint64
	Exits        uint64 // of all processes
	ExitsDropped uint64 // not told to the callbacks: they were too slow
	Evicted      uint64 // forgotten for want of room, before their time
	BadValues    uint64 // variables of a launcher that held no sensible value
	Truncated    uint64 // environments longer than 256 KiB
	Unreadable   uint64 // environments, cgroups and users that /proc did not give
	Scans        uint64 // readings of all of /proc
	Unremembered uint64 // ranks that the next process will not know, for want of room
	// SendersUnnoted are signals whose senders are not known, for want of room of those whom
	// they were sent to.
	SendersUnnoted uint64
}
