// Package kernellog understands what accelerator, network, PCIe and storage
// drivers write to the kernel log: one line in, the faults it reports out. It is
// pure: no I/O, no clock, no goroutine. Every line is hostile until parsed.
package kernellog

import (
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// Event is the attributes of a fault: one of the generated types of events that a line
// of the kernel log becomes.
type Event interface {
	record.Event
	Judgement() record.JudgementAttributes
	Storm() record.StormAttributes
	Line() metadata.LineAttributes
}

// Fault is one thing a line says happened.
type Fault struct {
	Key      Key
	State    string // of a thing that has states (a link, a recovery action): a change is never a repetition
	Time     time.Time
	Severity record.Severity
	Class    catalogue.Class
	Remedy   string // in plain words, "" when nothing is to be done

	ApplicationCaused bool // the application's doing, not the hardware's: pages nobody by itself

	OwnerPID  uint32 // process the fault belongs to, 0 when not known
	OwnerName string
	Owner     *identity.Process // who that is; the receiver looks it up

	Origin     kmsg.Function // who wrote the line
	WriterPID  uint32
	WriterComm string

	Text      string // the line
	Late      bool   // read from the kernel's buffer
	Truncated bool   // it was longer than what is copied
	Event     Event  // what the line alone says
}

// Key is equal for two lines that report the same fault.
type Key struct {
	Event    string
	Subject  string // GPU, port, server
	Part     string // link, unit, ring, module
	Instance MIG
	Code     uint32
	SubCode  uint32
	PID      uint32
	Injected bool         // a test made it; never joins a true one
	Trust    record.Trust // nor does a claim
	Writer   kmsg.Writer
}

// Waits reports whether f can wait for its fold to close: nothing about it
// calls for action at once. A change of state never waits.
func (f *Fault) Waits() bool {
	if f.State != "" {
		return false
	}
	return f.ApplicationCaused || f.Class == catalogue.ClassRestartApplication || f.Class == catalogue.ClassInformational
}

// judge takes over what the catalogue says about a fault.
func (f *Fault) judge(j catalogue.Judgement) {
	f.Class, f.Severity, f.Remedy = j.Class, j.Severity, j.Remedy
}
