package kernellog

import (
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

const vendorAMD = "amd"

// amdWriters are the driver as a module, and its parts where it is built in.
var amdWriters = writers{modules: []string{"amdgpu"}, functions: []string{
	"amdgpu_", "gfx_v", "gmc_v", "sdma_v", "umc_v", "nbio_v", "psp_v", "smu_v", "soc15_", "soc21_", "kfd_", "svm_range_",
}}

// amdLine takes off what begins the lines of the driver: "amdgpu 0000:28:00.0: ", with
// "amdgpu: " or "[drm] " and "*ERROR* " after it, or "[drm:amdgpu_job_timedout [amdgpu]]
// *ERROR* ".
func amdLine(text string) (device, rest string, found bool) {
	if rest, found = strings.CutPrefix(text, "[drm:amdgpu_"); found {
		_, rest, found = strings.Cut(rest, " [amdgpu]] *ERROR* ")
		return "", rest, found
	}
	driver, device, _, rest := deviceLine(text)
	for _, more := range []string{"amdgpu: ", "[drm] ", "*ERROR* "} {
		rest = strings.TrimPrefix(rest, more)
	}
	return device, rest, driver == "amdgpu" && device != ""
}

// parseAMD reads the lines of the amdgpu driver.
func (p *assembler) parseAMD(faults []Fault, l line) ([]Fault, Outcome) {
	device, rest, found := amdLine(l.text)
	if !found {
		return faults, Unrecognized
	}
	if ring, timeout := strings.CutPrefix(rest, "ring "); timeout {
		return p.amdTimeout(faults, l, device, ring)
	}
	if reset, found := strings.CutPrefix(rest, "GPU reset"); found {
		return p.amdReset(faults, l, device, reset)
	}
	for _, begin := range []string{"[gfxhub", "[mmhub"} {
		if hub, found := strings.CutPrefix(rest, begin); found && strings.Contains(hub, "page fault") {
			return append(faults, p.amdPageFault(l, device, hub)), Reported
		}
	}
	return p.amdUncorrectable(faults, l, device, rest)
}

func (p *assembler) amdTimeout(faults []Fault, l line, device, rest string) ([]Fault, Outcome) {
	ring, after, found := strings.Cut(rest, " timeout, ")
	switch {
	case !found:
		return faults, Unrecognized
	case strings.Contains(after, "soft recovered"):
		return faults, Benign
	}
	f, _ := p.amdFault(l, device, "ring_timeout", ring)
	return append(faults, f), Reported
}

func (p *assembler) amdPageFault(l line, device, rest string) Fault {
	hub, after, _ := strings.Cut(rest, "]")
	f, _ := p.amdFault(l, device, "page_fault", hub)
	f.OwnerPID, f.OwnerName = l.amdProcess(after)
	f.Key.PID, f.ApplicationCaused = f.OwnerPID, true
	return f
}

func (p *assembler) amdFault(l line, device, fault, part string) (Fault, metadata.GpuFault) {
	a := metadata.GpuFaultOn(record.Early())
	f := p.fault(l, a, device)
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
func (p *assembler) amdUncorrectable(faults []Fault, l line, device, rest string) ([]Fault, Outcome) {
	before, after, found := strings.Cut(rest, "uncorrectable hardware error")
	words := strings.Fields(strings.TrimSuffix(strings.TrimRight(before, " "), " new"))
	if !found || slices.ContainsFunc(words, func(w string) bool { return !amdCounts(w) }) {
		return faults, Unrecognized
	}
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
	f, a := p.amdFault(l, device, "uncorrectable_error", block)
	if counted {
		a.KerneleventsErrorCount(int64(count))
	}
	return append(faults, f), Reported
}

// amdCounts reports whether a word can stand before the number of errors: "socket: 0,
// die: 1, 3 new", "Total 3", "{1}".
func amdCounts(word string) bool {
	word = strings.Trim(word, "{}:,")
	if _, rest, ok := number(word); ok && rest == "" {
		return true
	}
	return slices.Contains([]string{"socket", "die", "aid", "hbm", "Total", "no", "No"}, word)
}

// amdReset reads "GPU reset(5) succeeded!" and "GPU reset succeeded, trying to
// resume", and their failed counterparts; "GPU reset begin!" is neither.
func (p *assembler) amdReset(faults []Fault, l line, device, after string) ([]Fault, Outcome) {
	switch {
	case strings.Contains(after, "succeeded"):
		a := metadata.GpuRecoveredOn(record.Early())
		f := p.fault(l, a, device)
		f.State = "recovered"
		f.judge(p.catalogue.Fault(metadata.EventGpuRecovered))
		p.putGPU(a.Gpu(), device, vendorAMD)
		return append(faults, f), Reported
	case strings.Contains(after, "failed"):
		f, _ := p.amdFault(l, device, "reset_failed", "")
		return append(faults, f), Reported
	}
	return faults, Benign
}

// amdProcess reads "… for process python pid 1234 thread …" or "… in process
// python pid 1234 …".
func (l line) amdProcess(text string) (pid uint32, name string) {
	_, rest, found := strings.Cut(text, "process ")
	if !found || l.more != "" || strings.Count(rest, " pid ") > 2 { // a name that holds the words, or cuts the line short
		return 0, ""
	}
	name, digits, found := strings.Cut(rest, " pid ")
	pid, _, ok := number(digits)
	if !found || !ok || pid == 0 {
		return 0, ""
	}
	return pid, name
}
