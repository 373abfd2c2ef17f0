package kernellog

import (
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// believe takes over the severity word that a line itself carries, and returns it in
// lower case without hyphens.
func (f *Fault) believe(word string) string {
	word = strings.ReplaceAll(strings.ToLower(word), "-", "")
	switch word {
	case "fatal":
		f.Severity = record.Error
	case "nonfatal", "recoverable":
		f.Severity = record.Warning
	case "corrected", "correctable", "informational", "info":
		f.Severity, f.Class, f.Remedy = record.Info, catalogue.ClassInformational, ""
	}
	return word
}

// parseUUID remembers "NVRM: GPU at PCI:0000:65:00: GPU-<uuid>", which the
// driver writes once per GPU.
func (p *Parser) parseUUID(faults []Fault, l line) ([]Fault, Outcome) {
	_, rest, found := strings.Cut(l.text, "NVRM: GPU at ")
	if !found {
		return faults, Unrecognized
	}
	place, uuid, found := strings.Cut(rest, ": ")
	device, ok := pciAddress(place)
	uuid, _, _ = strings.Cut(uuid, " ")
	if !found || !ok || !strings.HasPrefix(uuid, "GPU-") || len(uuid) > 64 {
		return faults, Unrecognized
	}
	p.uuids.set(device, uuid, l.Time)
	return faults, Benign
}

// parseLost reads a GPU that is gone without an Xid number, in one record:
// "NVRM: GPU 0000:65:00.0: GPU has fallen off the bus." or in three (kernel-open/
// nvidia/nv.c): "NVRM: The NVIDIA GPU 0000:65:00.0", "NVRM: (PCI ID: …) installed
// in this system has", "NVRM: fallen off the bus and is not responding to commands."
func (p *Parser) parseLost(faults []Fault, l line) ([]Fault, Outcome) {
	_, begun := p.lost.recent(l.PID, l.Time)
	if !begun && !strings.Contains(l.text, "NVRM:") {
		return faults, Unrecognized
	}
	if strings.Contains(l.text, "fallen off the bus") {
		return append(faults, p.lostGPU(l)), Reported
	}
	if _, rest, found := strings.Cut(l.text, "The NVIDIA GPU "); found {
		if device := pciIn(rest); device != "" {
			p.lost.set(l.PID, device, l.Time)
			return faults, Benign
		}
	}
	if strings.Contains(l.text, "installed in this system has") {
		return faults, Benign
	}
	return faults, Unrecognized
}

func (p *Parser) lostGPU(l line) Fault {
	device := pciIn(l.text)
	if device == "" {
		device, _ = p.lost.recent(l.PID, l.Time)
		p.lost.remove(l.PID)
	}
	a := metadata.GpuLostOn(record.Early())
	f := l.fault(a, device)
	f.judge(p.catalogue.Fault(metadata.EventGpuLost))
	p.putGPU(a.Gpu(), device, vendorNVIDIA)
	return f
}

// hardwareKey names one hardware error: its records share device and sequence
// number.
type hardwareKey struct{ device, sequence string }

// hardwareCase is a hardware error of which the severity has not come yet, or
// (reported) whose further records are detail.
type hardwareCase struct {
	fault    Fault
	reported bool
}

// parseHardwareError reads "nvidia 0000:65:00.0: NVRM: {7}[Hardware Error]: …",
// several records with one sequence number, of which "event severity: fatal"
// decides. It is one event, sent when the severity is known.
func (p *Parser) parseHardwareError(faults []Fault, l line) ([]Fault, Outcome) {
	before, detail, found := strings.Cut(l.text, "[Hardware Error]:")
	if !found || !strings.Contains(before, "NVRM: {") {
		return faults, Unrecognized
	}
	sequence, _ := between(before, "NVRM: {", "}")
	key := hardwareKey{pciIn(before), sequence}
	open, known := p.hardware.recent(key, l.Time)
	word, decided := between(detail, "event severity: ", " ")
	switch {
	case known && open.reported:
		return faults, Benign
	case decided:
		f, a := p.hardwareError(l, key)
		a.KerneleventsReportedSeverity(f.believe(word))
		f.Key.Part = strings.ToLower(word)
		faults = p.rememberHardwareError(faults, key, hardwareCase{reported: true}, l.Time)
		return append(faults, f), Reported
	case !known:
		f, _ := p.hardwareError(l, key)
		faults = p.rememberHardwareError(faults, key, hardwareCase{fault: f}, l.Time)
	}
	return faults, Benign
}

func (p *Parser) hardwareError(l line, key hardwareKey) (Fault, metadata.GpuFault) {
	a := metadata.GpuFaultOn(record.Early())
	f := l.fault(a, key.device)
	f.judge(p.catalogue.Fault("hardware_error"))
	p.putGPU(a.Gpu(), key.device, vendorNVIDIA)
	a.KerneleventsFault("hardware_error")
	return f, a
}

// rememberHardwareError reports the case that had to be forgotten for this one,
// and the one that this takes the place of when that is over.
func (p *Parser) rememberHardwareError(faults []Fault, key hardwareKey, c hardwareCase, at time.Time) []Fault {
	_, current := p.hardware.recent(key, at)
	old, stale := p.hardware.get(key)
	if stale && !current && !old.reported {
		faults = append(faults, old.fault)
	}
	if forgotten, full := p.hardware.set(key, c, at); full && !forgotten.reported {
		faults = append(faults, forgotten.fault)
	}
	return faults
}

// expireHardwareErrors reports those whose severity never came.
func (p *Parser) expireHardwareErrors(faults []Fault, now time.Time) []Fault {
	for len(p.hardware.order) > 0 {
		key := p.hardware.order[0]
		open := p.hardware.entries[key]
		if now.Sub(open.at) <= assemblyWindow {
			break
		}
		if !open.value.reported {
			faults = append(faults, open.value.fault)
		}
		p.hardware.remove(key)
	}
	return faults
}
