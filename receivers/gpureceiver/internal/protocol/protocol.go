// Package protocol is what the receiver and its helper program say to each other: the
// receiver writes commands, the helper one JSON message a line.
package protocol

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

// Poll is the command for one snapshot. The end of the commands ends the helper.
const Poll = "poll"

// maxMessage bounds a line. Sixteen GPUs with 36 links and 1,024 processes each
// take below 2 MiB.
const maxMessage = 8 << 20

// Message is one line; exactly one of its parts is there.
type Message struct {
	State    *State    `json:"state,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Hung     *Hung     `json:"hung,omitempty"`
}

// The states in which a helper can find the library.
const (
	Ready           = "ready"
	LibraryAbsent   = "library_absent"
	EngineAnswers   = "engine_answers" // DCGM's host engine, to a helper that only asks
	EngineAbsent    = "engine_unreachable"
	ConnectionLost  = "connection_lost" // to it, while it was read
	DriverNotLoaded = "driver_not_loaded"
	NoCgo           = "no_cgo" // the helper was built without a C compiler
	Failed          = "failed"
)

// State is the first message: what became of loading the library. After any but
// Ready, and after one that comes later, the helper ends.
type State struct {
	Name    string `json:"name"`
	Detail  string `json:"detail,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Library string `json:"library,omitempty"`
	GPUs    int    `json:"gpus"`
	Events  bool   `json:"events"` // events will come
}

// Snapshot answers Poll.
type Snapshot struct {
	GPUs []GPU `json:"gpus"`
}

// GPU is what there is to say of one GPU. Numbers that it does not have are left
// out.
type GPU struct {
	device.Identity
	Lost          bool                       `json:"lost,omitempty"`
	ResetRequired bool                       `json:"reset_required,omitempty"`
	Values        map[device.Quantity]uint64 `json:"values,omitempty"`
	Throttled     map[string]uint64          `json:"throttled,omitempty"` // reason → ns
	ECC           []ECC                      `json:"ecc,omitempty"`
	Links         []Link                     `json:"links,omitempty"`
	MIG           []device.MIG               `json:"mig,omitempty"`
	Processes     []device.Process           `json:"processes,omitempty"`
	Skipped       int                        `json:"skipped,omitempty"` // processes beyond the cap
	Ratios        map[string]float64         `json:"ratios,omitempty"`  // shares of time, by what was busy
	Health        []Incident                 `json:"health,omitempty"`
	HealthKnown   bool                       `json:"health_known,omitempty"` // somebody watches it
	Failures      []Failure                  `json:"failures,omitempty"`
}

// ECC is a counter of memory errors.
type ECC struct {
	device.ECCCounter
	Count uint64 `json:"count"`
}

// Link is one NVLink.
type Link struct {
	Number int                            `json:"number"`
	Values map[device.LinkQuantity]uint64 `json:"values"`
}

// Failure is a call that failed for another reason than that there is no such thing.
type Failure struct {
	Call string `json:"call"`
	Code string `json:"code"`
}

// Incident is a finding of the library's own watches over a GPU's health.
type Incident struct {
	System string `json:"system"`
	Failed bool   `json:"failed,omitempty"` // a failure; else a warning
	Text   string `json:"text,omitempty"`
}

// EventPolicy is the type of an event, beside those of nvml.h: a policy of the
// operator is violated.
const EventPolicy uint64 = 1 << 32

// Event is an event of the library.
type Event struct {
	device.Event
	Kind string `json:"kind,omitempty"` // of EventPolicy: its condition
	Text string `json:"text,omitempty"`
}

// Hung says that a call does not return; the helper ends after it.
type Hung struct {
	Call    string  `json:"call"`
	GPU     string  `json:"gpu,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Writer writes messages. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	to io.Writer
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Write writes one message.
func (w *Writer) Write(m Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.to.Write(append(line, '\n'))
	return err
}

// ErrMessage is the error for a line that is no message.
var ErrMessage = errors.New("no message of the helper")

// Reader reads messages.
type Reader struct{ lines *bufio.Scanner }

// NewReader reads from r.
func NewReader(r io.Reader) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMessage)
	return &Reader{lines: lines}
}

// Read reads the next message; io.EOF is the end.
func (r *Reader) Read() (Message, error) {
	if !r.lines.Scan() {
		if err := r.lines.Err(); err != nil {
			return Message{}, err
		}
		return Message{}, io.EOF
	}
	return decode(r.lines.Bytes())
}

func decode(line []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	parts := 0
	for _, there := range []bool{m.State != nil, m.Snapshot != nil, m.Event != nil, m.Hung != nil} {
		if there {
			parts++
		}
	}
	if parts != 1 {
		return Message{}, fmt.Errorf("%w: it has %d parts", ErrMessage, parts)
	}
	m.bound()
	return m, nil
}
