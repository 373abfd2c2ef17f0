package kernellog

import (
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
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

// Parser turns kernel-log records into faults. It is not safe for concurrent use.
type Parser struct {
	families        []family
	proven, claimed assembler
}

// assembler parses the records of one trust, and remembers the little that spans
// several of them. Claims are remembered apart: they add nothing to a proven fault.
type assembler struct {
	catalogue *catalogue.Catalogue
	trust     record.Trust

	uuids    memory[string, string]            // GPU → UUID; the driver says it once per GPU
	lost     memory[uint32, string]            // writer → GPU of a "The NVIDIA GPU ..." that may go on as "fallen off the bus"
	crashes  memory[uint32, crash]             // writer → its crash, when the place comes as a fragment of its own
	sxids    memory[sxidKey, struct{}]         // SXids reported, whose detail records may follow
	hardware memory[hardwareKey, hardwareCase] // hardware errors whose severity may still come
	ports    memory[string, Fault]             // port → its error, whose type may still come
	amd      memory[amdWaiting, Fault]         // writer and GPU → fault of an AMD GPU, whose process may still come
}

// NewParser returns a parser that judges faults by their meanings.
func NewParser(meanings *catalogue.Catalogue) *Parser {
	return &Parser{
		families: families(),
		proven:   assembler{catalogue: meanings, trust: record.Proven},
		claimed:  assembler{catalogue: meanings, trust: record.Claimed},
	}
}

// line is the first line of a record. What follows a newline can be anybody's: the
// kernel quotes names and options as they are.
type line struct {
	*kmsg.Event
	text string
	more string // the other lines of the record
}

// fault starts a fault that this line reports.
func (p *assembler) fault(l line, event Event, subject string) Fault {
	return Fault{
		Event: event,

		Key:  Key{Event: event.EventName(), Subject: subject, Trust: p.trust, Writer: l.Writer},
		Time: l.Time, Origin: l.Origin, WriterPID: l.PID, WriterComm: l.Comm, Text: l.text, Truncated: l.Truncated, Late: l.Late,
	}
}

// Parse appends to faults what the record reports. Those whose writer is the driver
// itself come first: a line that one of them knows is proven. A line that only
// others know is a claim.
func (p *Parser) Parse(faults []Fault, event *kmsg.Event) ([]Fault, Outcome) {
	text, more, _ := strings.Cut(event.Text, "\n")
	l := line{event, strings.TrimSpace(text), more}
	for _, f := range p.families {
		if event.Writer == kmsg.WriterKernel && f.writers.include(event.Origin) {
			if faults, outcome := f.parse(&p.proven, faults, l); outcome != Unrecognized {
				return faults, outcome
			}
		}
	}
	for _, f := range p.families {
		if faults, outcome := f.parse(&p.claimed, faults, l); outcome != Unrecognized {
			return faults, outcome
		}
	}
	return faults, Unrecognized
}

// Expire appends to faults those whose missing part did not come in time.
func (p *Parser) Expire(faults []Fault, now time.Time) []Fault {
	return p.claimed.expire(p.proven.expire(faults, now), now)
}

// Pending reports whether Expire has anything to wait for.
func (p *Parser) Pending() bool { return p.proven.pending() || p.claimed.pending() }

func (p *assembler) expire(faults []Fault, now time.Time) []Fault {
	p.hardware.expire(now, func(c hardwareCase) {
		if !c.reported {
			faults = append(faults, c.fault)
		}
	})
	p.ports.expire(now, func(f Fault) { faults = append(faults, ofType(f, "")) })
	p.amd.expire(now, func(f Fault) { faults = append(faults, f) })
	return faults
}

func (p *assembler) pending() bool { return p.hardware.len()+p.ports.len()+p.amd.len() > 0 }
