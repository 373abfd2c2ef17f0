// Package flightrecorder reads the dumps of PyTorch's Flight Recorder, pickle
// and JSON, and condenses each process group of a dump to what a join across
// ranks needs. A dump is a file that anybody may have written: it is bounded in
// size and values, and nothing in it can run.
package flightrecorder

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Why a file is not read.
var (
	// ErrTruncated is a dump that is still being written, or was cut off.
	ErrTruncated = errors.New("the dump ends too early")
	// ErrNotADump is something else than a dump.
	ErrNotADump = errors.New("not a Flight Recorder dump")
	// ErrHostile is a pickle that would run code.
	ErrHostile = errors.New("refused")
	// ErrTooLarge is a dump beyond the limits.
	ErrTooLarge = errors.New("too large")
)

// Limits bound what one dump may cost.
type Limits struct {
	Values  int // numbers, texts and containers in a file
	Entries int // collectives in a file; beyond it the oldest are left out
	Memory  int // bytes that the values of a pickle may take
}

// DefaultLimits suffice for TORCH_FR_BUFFER_SIZE=20000 with stacks: 100 values
// an entry.
var DefaultLimits = Limits{Values: 4_000_000, Entries: 100_000, Memory: 96 << 20}

// Dump is one rank's Flight Recorder.
type Dump struct {
	Version string // "2.10"
	Library string // version of the communication library, "" of Gloo
	Host    string // host_name, where a dump has it
	Rank    int    // Unknown where the dump does not say
	Groups  map[string]GroupConfig
	Status  map[string]GroupStatus // by pg_id
	Entries []Entry
}

// Unknown is a number that the dump does not give.
const Unknown = -1

// GroupConfig is what pg_config says of a group.
type GroupConfig struct {
	Name  string
	Desc  string
	Ranks []int // nil where it cannot be read
}

// GroupStatus is what pg_status says of a group; Unknown where it says nothing.
type GroupStatus struct {
	LastEnqueued  int64
	LastStarted   int64
	LastCompleted int64
}

// Entry is one collective or point-to-point operation.
type Entry struct {
	RecordID      int64
	PGID          int64
	Group         string // process_group[0]
	Desc          string // process_group[1]
	CollectiveSeq int64
	P2PSeq        int64
	OpID          int64
	Name          string // profiling_name
	InputSizes    [][]int64
	InputDtypes   []string
	OutputSizes   [][]int64
	OutputDtypes  []string
	State         string
	Retired       bool
	IsP2P         bool
	TimeoutMS     int64
	CreatedNS     int64
	StartedNS     int64 // 0: not seen
	CompletedNS   int64 // 0: not seen
	Frames        []Frame
}

// Frame is one line of a Python stack, innermost first.
type Frame struct {
	Name string `json:"name"`
	File string `json:"filename"`
	Line int64  `json:"line"`
}

// Finished reports whether the operation is over. Gloo leaves the state of
// finished work at "scheduled" and only retires it; NCCL says "completed" before
// its watchdog comes round to retire.
func (e *Entry) Finished() bool { return e.Retired || e.State == "completed" }

// Decode reads a dump, pickle or JSON.
func Decode(data []byte, limits Limits) (*Dump, error) {
	d, err := decodeForm(data, limits)
	if err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, nil
}

func decodeForm(data []byte, limits Limits) (*Dump, error) {
	start := bytes.TrimLeft(data, " \t\r\n")
	if len(start) == 0 {
		return nil, ErrTruncated
	}
	if start[0] == '{' {
		return decodeJSON(start, limits)
	}
	root, err := unpickle(data, limits)
	if err != nil {
		return nil, err
	}
	return fromPickle(root, limits)
}

// check refuses a version whose meaning we do not know. Minor versions add
// fields (2.1 to 2.10 did), a new major version may change them.
func (d *Dump) check() error {
	major, minor, found := strings.Cut(d.Version, ".")
	if _, err := strconv.ParseUint(minor, 10, 16); !found || err != nil || len(d.Version) > 16 {
		return fmt.Errorf("%w: no format version", ErrNotADump)
	}
	if major != "2" {
		return fmt.Errorf("%w: format version %s, known are 2.0 and later of 2: update tracecore", ErrNotADump, d.Version)
	}
	return nil
}

// ParseRanks reads "[0, 1, 2]", as pg_config writes it. What it cannot read is nil.
func ParseRanks(s string) []int {
	inner, found := strings.CutPrefix(s, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !found || !closed {
		return nil
	}
	ranks := make([]int, 0, strings.Count(inner, ",")+1)
	for field := range strings.SplitSeq(inner, ",") {
		rank, err := strconv.ParseInt(strings.TrimSpace(field), 10, 32)
		if err != nil || rank < 0 || rank > MaxRank {
			return nil
		}
		ranks = append(ranks, int(rank))
	}
	return ranks
}

// MaxRank bounds the ranks of a job: 60 times the largest known.
const MaxRank = 1<<20 - 1
