package kernellog

import (
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
)

// Outcome says what a line was to the parser.
type Outcome string

// The outcomes, in rising order of interest.
const (
	Unrecognized Outcome = "unrecognized" // no shape that the parser knows
	Benign       Outcome = "benign"       // understood: no fault, or detail of one reported already
	Reported     Outcome = "reported"     // a fault, a recovery or a change of state
)

// How long, in event time, the parser remembers what later lines refer to.
const (
	// assemblyWindow bounds a fault that takes several records. Drivers write
	// them back to back from one thread; a second is generous.
	assemblyWindow = time.Second
	// remembered caps every memory of the parser: more GPUs, switches and
	// writers than one node has.
	remembered = 512
)

// Parser turns kernel-log records into faults. It remembers the little that
// spans several records. It is not safe for concurrent use.
type Parser struct {
	catalogue *catalogue.Catalogue

	uuids    memory[string, string]            // GPU → UUID; the driver says it once per GPU
	lost     memory[uint32, string]            // writer → GPU of a "The NVIDIA GPU ..." that may go on as "fallen off the bus"
	crashes  memory[uint32, crash]             // writer → its crash, when the place comes as a fragment of its own
	sxids    memory[sxidKey, struct{}]         // SXids reported, whose detail records may follow
	hardware memory[hardwareKey, hardwareCase] // hardware errors whose severity may still come
}

// NewParser returns a parser that judges faults by their meanings.
func NewParser(meanings *catalogue.Catalogue) *Parser { return &Parser{catalogue: meanings} }

// line is one line of a record; a driver may print several at once.
type line struct {
	*kmsg.Event
	text string
}

// fault starts a fault that this line reports.
func (l line) fault(event Event, subject string) Fault {
	return Fault{
		Event: event,

		Key:  Key{Event: event.EventName(), Subject: subject, Writer: l.Writer},
		Time: l.Time, Writer: l.Writer, WriterPID: l.PID, WriterComm: l.Comm, Text: l.text, Truncated: l.Truncated,
	}
}

// Parse appends to faults what the record reports, and says what the most
// interesting of its lines was.
func (p *Parser) Parse(faults []Fault, event *kmsg.Event) ([]Fault, Outcome) {
	best := Unrecognized
	for text := range strings.SplitSeq(event.Text, "\n") {
		var outcome Outcome
		faults, outcome = p.parseLine(faults, line{event, strings.TrimSpace(text)})
		if outcome == Reported || best == Unrecognized {
			best = outcome
		}
	}
	return faults, best
}

// parseLine asks each family of drivers in turn. Nothing is anchored at the
// start of the line: KERN_CONT fragments and device prefixes come before.
func (p *Parser) parseLine(faults []Fault, l line) ([]Fault, Outcome) {
	for _, parse := range [...]func([]Fault, line) ([]Fault, Outcome){
		p.parseSXid, p.parseXid, p.parseUUID, p.parseHardwareError, p.parseLost,
		p.parseAMD, p.parseNetwork, p.parsePCIe, p.parseMemory, p.parseHost,
	} {
		var outcome Outcome
		if faults, outcome = parse(faults, l); outcome != Unrecognized {
			return faults, outcome
		}
	}
	return faults, Unrecognized
}

// Expire appends to faults those whose missing part did not come in time.
func (p *Parser) Expire(faults []Fault, now time.Time) []Fault {
	return p.expireHardwareErrors(faults, now)
}

// Pending reports whether Expire has anything to wait for.
func (p *Parser) Pending() bool { return p.hardware.len() > 0 }
