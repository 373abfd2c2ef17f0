package kernellog

import (
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/receivers/internal/catalogue"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// nvidiaWriters are NVIDIA's modules; nothing of them is ever built in.
var nvidiaWriters = writers{modules: []string{"nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm"}}

// nvidiaLine takes off what begins each line of the driver, "NVRM: ", and in newer ones
// the device before it: "nvidia 0000:65:00.0: NVRM: ".
func nvidiaLine(text string) (device, rest string, found bool) {
	if rest, found = strings.CutPrefix(text, "NVRM: "); found {
		return "", rest, true
	}
	driver, device, _, rest := deviceLine(text)
	rest, found = strings.CutPrefix(rest, "NVRM: ")
	return device, rest, found && driver == "nvidia"
}

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
func (p *assembler) parseUUID(faults []Fault, l line) ([]Fault, Outcome) {
	_, rest, found := nvidiaLine(l.text)
	rest, names := strings.CutPrefix(rest, "GPU at ")
	if !found || !names {
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
// "NVRM: GPU 0000:65:00.0: GPU has fallen off the bus." or in three, which can be the
// lines of one (kernel-open/nvidia/nv.c): "NVRM: The NVIDIA GPU 0000:65:00.0",
// "NVRM: (PCI ID: …) installed in this system has", "NVRM: fallen off the bus and is not
// responding to commands."
func (p *assembler) parseLost(faults []Fault, l line) ([]Fault, Outcome) {
	_, rest, found := nvidiaLine(l.text)
	device, begun := p.lost.recent(l.PID, l.Time)
	if !found && !begun {
		return faults, Unrecognized
	}
	if !found {
		rest = l.text
	}
	if strings.HasPrefix(rest, "fallen off the bus") {
		p.lost.remove(l.PID)
		return append(faults, p.lostGPU(l, device, vendorNVIDIA)), Reported
	}
	if gpu, found := strings.CutPrefix(rest, "GPU "); found {
		address, words, _ := strings.Cut(gpu, ": ")
		if gone, isGPU := pciAddress(address); isGPU && strings.HasPrefix(words, "GPU has fallen off the bus") {
			return append(faults, p.lostGPU(l, gone, vendorNVIDIA)), Reported
		}
	}
	if gpu, found := strings.CutPrefix(rest, "The NVIDIA GPU "); found {
		return p.beginLost(faults, l, gpu)
	}
	if strings.HasPrefix(rest, "(PCI ID: ") || strings.HasPrefix(rest, "installed in this system has") {
		return faults, Benign
	}
	return faults, Unrecognized
}

// beginLost reads the rest of the record when the driver put all of it into one. It is
// the driver's own text from its first word, with no name in it.
func (p *assembler) beginLost(faults []Fault, l line, gpu string) ([]Fault, Outcome) {
	address, _, _ := strings.Cut(gpu, " ")
	device, ok := pciAddress(address)
	if !ok {
		return faults, Unrecognized
	}
	installed, end, _ := strings.Cut(l.more, "\n")
	if strings.Contains(installed, "installed in this system has") && strings.HasPrefix(strings.TrimSpace(end), "NVRM: fallen off the bus") {
		f := p.lostGPU(l, device, vendorNVIDIA)
		f.Text = l.Text
		return append(faults, f), Reported
	}
	p.lost.set(l.PID, device, l.Time)
	return faults, Benign
}

func (p *assembler) lostGPU(l line, device, vendor string) Fault {
	a := metadata.GpuLostOn(record.Early())
	f := p.fault(l, a, device)
	f.judge(p.catalogue.Fault(metadata.EventGpuLost))
	p.putGPU(a.Gpu(), device, vendor)
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
func (p *assembler) parseHardwareError(faults []Fault, l line) ([]Fault, Outcome) {
	device, rest, found := nvidiaLine(l.text)
	sequence, detail, numbered := strings.Cut(rest, "}[Hardware Error]:")
	sequence, begins := strings.CutPrefix(sequence, "{")
	if !found || !numbered || !begins {
		return faults, Unrecognized
	}
	key := hardwareKey{device, sequence}
	open, known := p.hardware.recent(key, l.Time)
	word, decided := strings.CutPrefix(strings.TrimSpace(detail), "event severity: ")
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

func (p *assembler) hardwareError(l line, key hardwareKey) (Fault, metadata.GpuFault) {
	a := metadata.GpuFaultOn(record.Early())
	f := p.fault(l, a, key.device)
	f.judge(p.catalogue.Fault("hardware_error"))
	p.putGPU(a.Gpu(), key.device, vendorNVIDIA)
	a.KerneleventsFault("hardware_error")
	return f, a
}

// rememberHardwareError reports the case that had to be forgotten for this one,
// and the one that this takes the place of when that is over.
func (p *assembler) rememberHardwareError(faults []Fault, key hardwareKey, c hardwareCase, at time.Time) []Fault {
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
