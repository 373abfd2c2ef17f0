package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

const vendorAMD = "amd"

// parseAMD reads the lines of the amdgpu driver. They come with and without a
// device: "amdgpu 0000:28:00.0: amdgpu: …" and "[drm:amdgpu_job_timedout [amdgpu]]
// *ERROR* …".
func (p *Parser) parseAMD(faults []Fault, l line) ([]Fault, Outcome) {
	if !strings.Contains(l.text, "amdgpu") {
		return faults, Unrecognized
	}
	switch {
	case strings.Contains(l.text, "soft recovered"):
		return faults, Benign
	case strings.Contains(l.text, " timeout, ") && strings.Contains(l.text, "ring "):
		ring, _ := between(l.text, "ring ", " timeout,")
		f, _ := p.amdFault(l, "ring_timeout", ring)
		return append(faults, f), Reported
	case strings.Contains(l.text, "uncorrectable hardware error"):
		return p.amdUncorrectable(faults, l)
	case strings.Contains(l.text, "page fault") && (strings.Contains(l.text, "[gfxhub") || strings.Contains(l.text, "[mmhub")):
		hub, _ := between(l.text, "hub", "]")
		f, _ := p.amdFault(l, "page_fault", hub)
		f.OwnerPID, f.OwnerName = amdProcess(l.text)
		f.Key.PID, f.ApplicationCaused = f.OwnerPID, true
		return append(faults, f), Reported
	case strings.Contains(l.text, "GPU reset"):
		return p.amdReset(faults, l)
	}
	return faults, Unrecognized
}

func (p *Parser) amdFault(l line, fault, part string) (Fault, metadata.GpuFault) {
	device := pciIn(l.text)
	a := metadata.GpuFaultOn(record.Early())
	f := l.fault(a, device)
	f.Key.Part = fault + " " + part
	f.judge(p.catalogue.Fault(fault))
	p.putGPU(a.Gpu(), device, vendorAMD)
	a.KerneleventsFault(fault)
	if fault == "ring_timeout" || fault == "uncorrectable_error" {
		a.KerneleventsBlock(part)
	}
	return f, a
}

// amdUncorrectable reads "2 uncorrectable hardware errors detected in umc block"
// and "uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!". A poll
// that found none prints the same words with "no" or 0, and a running total
// ("… in total in umc block", "Total 3 …") repeats what was reported before.
func (p *Parser) amdUncorrectable(faults []Fault, l line) ([]Fault, Outcome) {
	before, after, _ := strings.Cut(l.text, "uncorrectable hardware error")
	words := strings.Fields(strings.TrimSuffix(strings.TrimRight(before, " "), " new"))
	amount := ""
	if len(words) > 0 {
		amount = words[len(words)-1]
	}
	total := strings.Contains(after, "in total") || (len(words) > 1 && words[len(words)-2] == "Total")
	count, rest, counted := number(amount)
	counted = counted && rest == ""
	if amount == "no" || amount == "No" || total || (counted && count == 0) {
		return faults, Benign
	}
	block, _ := between(after, " in ", " block")
	f, a := p.amdFault(l, "uncorrectable_error", block)
	if counted {
		a.KerneleventsErrorCount(int64(count))
	}
	return append(faults, f), Reported
}

// amdReset reads "GPU reset(5) succeeded!" and "GPU reset succeeded, trying to
// resume", and their failed counterparts; "GPU reset begin!" is neither.
func (p *Parser) amdReset(faults []Fault, l line) ([]Fault, Outcome) {
	_, after, _ := strings.Cut(l.text, "GPU reset")
	switch {
	case strings.Contains(after, "succeeded"):
		device := pciIn(l.text)
		a := metadata.GpuRecoveredOn(record.Early())
		f := l.fault(a, device)
		f.State = "recovered"
		f.judge(p.catalogue.Fault(metadata.EventGpuRecovered))
		p.putGPU(a.Gpu(), device, vendorAMD)
		return append(faults, f), Reported
	case strings.Contains(after, "failed"):
		f, _ := p.amdFault(l, "reset_failed", "")
		return append(faults, f), Reported
	}
	return faults, Benign
}

// amdProcess reads "… for process python pid 1234 thread …" or "… in process
// python pid 1234 …".
func amdProcess(text string) (pid uint32, name string) {
	_, rest, found := strings.Cut(text, "process ")
	if !found {
		return 0, ""
	}
	name, digits, found := strings.Cut(rest, " pid ")
	pid, _, ok := number(digits)
	if !found || !ok || pid == 0 {
		return 0, ""
	}
	return pid, name
}
