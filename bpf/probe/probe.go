// Package probe holds what every probe says about itself: the ladder of hooks
// it can use, the rung it took, and why it did not take a better one.
package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

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
	// Away is what it knows of the time before it was opened.
	Away Away `json:"-"`
}

// Clone is a copy that shares nothing with the report.
func (r Report) Clone() Report {
	r.Attempts = slices.Clone(r.Attempts)
	return r
}

// Stats are the counters of one probe since it was opened.
type Stats struct {
	Events  uint64 // records read by user space
	Dropped uint64 // records the kernel side could not put into the ring
	Invalid uint64 // records refused by the decoder
	Crowded uint64 // of the dropped, those of owners who had more than their share of the ring
	Crowder uint32 // the user of the last of these
}

// ErrClosed is returned by Read after Close.
var ErrClosed = errors.New("probe closed")

// Away is what a probe that outlives its process knows of the time in which nobody read it.
type Away struct {
	Pinned bool // what happens while the next process is away will be known
	// Since is when an earlier process last looked, zero where none left anything. Until is
	// when this one began to see everything.
	Since, Until time.Time
	Records      uint64    // that were read late
	Lost         uint64    // that the ring had no room for, after Full
	Full         time.Time // zero where nothing was lost
	Foreign      uint64    // that another version left, and nobody can read
	Err          error     // why not all of this works
}

// Missed is how many records of that time nobody will read.
func (a Away) Missed() uint64 { return a.Lost + a.Foreign }

// Gap says which records of that time are not known, and why; "" where all are known. things
// are what the probe tells of: "OOM kills".
func (a Away) Gap(things string) string {
	var why []string
	if a.Lost > 0 {
		after := ""
		if !a.Full.IsZero() {
			after = " after " + a.Full.UTC().Format(time.RFC3339)
		}
		why = append(why, fmt.Sprintf("the ring had no room for %d%s", a.Lost, after))
	}
	if a.Foreign > 0 {
		why = append(why, fmt.Sprintf("%d are of another version of tracecore, whose records this one cannot read", a.Foreign))
	}
	if len(why) == 0 {
		return ""
	}
	return fmt.Sprintf("not all %s between %s and %s are known, when no agent ran: %s", things,
		a.Since.UTC().Format(time.RFC3339), a.Until.UTC().Format(time.RFC3339), strings.Join(why, "; "))
}
