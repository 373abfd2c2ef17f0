// Package probe holds what every probe says about itself: the ladder of hooks
// it can use, the rung it took, and why it did not take a better one.
package probe

import "errors"

// Outcome tells an absent feature from a forbidden and a broken one.
type Outcome string

// The outcomes of trying one rung of a ladder.
const (
	// OK: loaded, attached and, where Fired is true, seen to fire.
	OK Outcome = "ok"
	// Unsupported: this kernel does not have the hook.
	Unsupported Outcome = "unsupported"
	// Denied: a privilege, a lockdown mode or a policy refuses it.
	Denied Outcome = "denied"
	// Silent: attached, and its harmless cause was made, but nothing came.
	Silent Outcome = "silent"
	// Broken: anything else; Reason says what.
	Broken Outcome = "broken"
)

// Attempt is the result of trying one rung.
type Attempt struct {
	Rung    string  `json:"rung"` // stable id: "tp_btf/console", "kprobe/prb_commit"
	Outcome Outcome `json:"outcome"`
	Fired   bool    `json:"fired"`            // a harmless cause was made and its event arrived
	Reason  string  `json:"reason,omitempty"` // empty when OK
	Hint    string  `json:"hint,omitempty"`   // what an operator can do about it
}

// Report is what a probe found on this kernel, best rung first, up to and
// including the one it took.
type Report struct {
	Probe    string    `json:"probe"` // folder name: "kmsg", "oomkill", "identity"
	Rung     string    `json:"rung"`  // rung in use, "" when none works
	Attempts []Attempt `json:"attempts"`
	// Unproven says why nothing shows who said what the probe delivers, and what to
	// do about it. Empty where that is shown.
	Unproven string `json:"unproven,omitempty"`
}

// Stats are the counters of one probe since it was opened.
type Stats struct {
	Events  uint64 // records read by user space
	Dropped uint64 // records the kernel side could not put into the ring
	Invalid uint64 // records refused by the decoder
}

// ErrClosed is returned by Read after Close.
var ErrClosed = errors.New("probe closed")
