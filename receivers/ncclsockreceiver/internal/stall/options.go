package stall

import (
	"time"

	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// Options are the thresholds and bounds. The receiver's README gives the reason
// of each default.
type Options struct {
	Interval time.Duration // between two snapshots
	Repeat   time.Duration // between two records of one stall

	Halted    time.Duration // patience with a process that is stopped or a zombie
	Asleep    time.Duration // with one that neither is nor computes, at least
	Computing time.Duration // with one that makes progress
	Notice    time.Duration // with one that makes progress, until the others are said to wait for it
	Service   time.Duration // with unread bytes of RAS and store
	Network   time.Duration // with data that is not acknowledged
	Connect   time.Duration // with a connection that does not come about

	PhaseFactor    float64       // silences up to this many usual phases are phases
	PhaseLearning  int           // snapshots with traffic until a job's phases are known
	PhaseUnlearned time.Duration // usual phase until then
	Found          time.Duration // how long a rank that was found silent rests under watch, at least, until then
	PhaseMemory    time.Duration // how long a long phase is remembered, at least

	RankPortsFrom uint16 // ports that the kernel chooses begin here

	MaxSockets int // watched at a time
	MaxStalls  int // open at a time
	MaxPeers   int // series of traffic, pairs of job and peer address
}

// Defaults are the options of a receiver without a configuration.
func Defaults() Options {
	return Options{
		Interval: time.Second, Repeat: socketstall.Repeat,
		Halted: 2 * time.Second, Asleep: 3 * time.Second, Computing: 10 * time.Minute, Notice: 20 * time.Second,
		Service: 5 * time.Second, Network: 2 * time.Second, Connect: 3 * time.Second,
		PhaseFactor: 2, PhaseLearning: 10, PhaseUnlearned: 30 * time.Second, Found: 10 * time.Second, PhaseMemory: time.Hour,
		RankPortsFrom: 32768, MaxSockets: 20000, MaxStalls: 4096, MaxPeers: 1024,
	}
}

// asleep is Asleep for a rest, which is counted from one snapshot to another: these come some milliseconds early or late.
func (o *Options) asleep() time.Duration { return o.Asleep - o.Interval/10 }

// halted is the same for Halted.
func (o *Options) halted() time.Duration { return o.Halted - o.Interval/10 }

// timeouts is how many retransmit timeouts in a row make a network stall. One
// happens to every connection now and then (a lost tail), two in a row do not.
const timeouts = 2
