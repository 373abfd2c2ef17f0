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
// *ERROR* ". The number of an event of RAS, "{3}", stands right before its text (Linux 6.11
// and later, amdgpu_ras_event_log_print).
func amdLine(text string) (device, rest string, found bool) {
	if rest, found = strings.CutPrefix(text, "[drm:amdgpu_"); found {
		_, rest, found = strings.Cut(rest, " [amdgpu]] *ERROR* ")
		return "", rest, found
	}
	driver, device, _, rest := deviceLine(text)
	for _, more := range []string{"amdgpu: ", "[drm] ", "*ERROR* "} {
		rest = strings.TrimPrefix(rest, more)
	}
	if event, after, numbered := strings.Cut(rest, "}"); numbered && strings.HasPrefix(event, "{") {
		if _, behind, ok := number(event[1:]); ok && behind == "" {
			rest = after
		}
	}
	return device, rest, driver == "amdgpu" && device != ""
}

// parseAMD reads the lines of the amdgpu driver. Each can complete the fault that its writer
// has told just before.
func (p *assembler) parseAMD(faults []Fault, l line) ([]Fault, Outcome) {
	device, rest, found := amdLine(l.text)
	if !found {
		return faults, Unrecognized
	}
	waiting := len(faults)
	faults, known := p.completeAMD(faults, l, device, rest)
	faults, outcome := p.parseAMDLine(faults, l, device, rest)
	switch {
	case len(faults) > waiting:
		return faults, Reported
	case known && outcome == Unrecognized:
		return faults, Benign
	}
	return faults, outcome
}

func (p *assembler) parseAMDLine(faults []Fault, l line, device, rest string) ([]Fault, Outcome) {
	if ring, timeout := strings.CutPrefix(rest, "ring "); timeout {
		return p.amdTimeout(faults, l, device, ring)
	}
	if ring, found := strings.CutPrefix(rest, "Ring "); found {
		return p.amdRingReset(faults, l, device, ring)
	}
	if reset, found := strings.CutPrefix(rest, "GPU reset"); found {
		return p.amdReset(faults, l, device, reset)
	}
	if strings.HasPrefix(rest, "device lost from bus!") { // amdgpu_device.c, as a reset begins
		return append(faults, p.lostGPU(l, device, vendorAMD)), Reported
	}
	for _, begin := range []string{"[gfxhub", "[mmhub"} {
		if hub, found := strings.CutPrefix(rest, begin); found && strings.Contains(hub, "page fault") {
			return p.amdPageFault(faults, l, device, hub)
		}
	}
	return p.amdUncorrectable(faults, l, device, rest)
}

// amdWaiting is whose next lines tell more of a fault. The writer alone does not tell: of what
// interrupts write on idle CPUs, it is 0 for all GPUs.
type amdWaiting struct {
	writer uint32
	device string // "" as in the line of the fault
}

// holdAMD keeps a fault of which the next lines of its writer on its GPU tell more.
func (p *assembler) holdAMD(faults []Fault, l line, f Fault) ([]Fault, Outcome) {
	forgotten, full := p.amd.set(amdWaiting{l.PID, f.Key.Subject}, f, l.Time)
	if full {
		return append(faults, forgotten), Reported
	}
	return faults, Benign
}

// completeAMD gives out the fault that waits for a line of this writer on this GPU, with the
// process that the line names. A fault without a GPU, as up to Linux 6.8 a ring that timed out comes, waits on
// for "amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!", with which the reset of that GPU follows.
// known is whether the line is of use to such a fault alone.
func (p *assembler) completeAMD(faults []Fault, l line, device, rest string) (_ []Fault, known bool) {
	pid, name, known := l.amdTask(rest)
	waiting := amdWaiting{l.PID, device}
	f, open := p.amd.get(waiting)
	if !open {
		waiting.device = ""
		f, open = p.amd.get(waiting)
	}
	if !open {
		return faults, known
	}
	if _, current := p.amd.recent(waiting, l.Time); current {
		if pid != 0 && f.OwnerPID == 0 {
			f.own(name, pid)
		}
		if a, ok := f.Event.(metadata.GpuFault); ok && f.Key.Subject == "" && strings.HasPrefix(rest, "GPU reset begin") {
			f.Key.Subject = device
			a.GpuID(device)
		}
		if known && f.Key.Subject == "" {
			p.amd.set(waiting, f, l.Time)
			return faults, known
		}
	}
	p.amd.remove(waiting)
	return append(faults, f), known
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
	return p.holdAMD(faults, l, f)
}

func (p *assembler) amdPageFault(faults []Fault, l line, device, rest string) ([]Fault, Outcome) {
	hub, after, _ := strings.Cut(rest, "]")
	f, _ := p.amdFault(l, device, "page_fault", hub)
	f.ApplicationCaused = true
	if !strings.Contains(after, " process ") { // up to Linux 6.8 the line itself names it
		return p.holdAMD(faults, l, f)
	}
	f.OwnerPID, f.OwnerName = l.amdProcess(after)
	f.Key.PID = f.OwnerPID
	return append(faults, f), Reported
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
// die: 1, 3 new", "Total 3".
func amdCounts(word string) bool {
	word = strings.Trim(word, ":,")
	if _, rest, ok := number(word); ok && rest == "" {
		return true
	}
	return slices.Contains([]string{"socket", "die", "aid", "hbm", "Total", "no", "No"}, word)
}

// amdRingReset reads "Ring gfx_0.0.0 reset succeeded" of a ring that was reset alone
// (amdgpu_job.c; not said by the first kernels that do so). Where it failed, the whole GPU is reset.
func (p *assembler) amdRingReset(faults []Fault, l line, device, rest string) ([]Fault, Outcome) {
	ring, after, found := strings.Cut(rest, " reset ")
	switch {
	case found && strings.HasPrefix(after, "succeeded"):
		return append(faults, p.amdRecovered(l, device, ring)), Reported
	case found && strings.HasPrefix(after, "fail"):
		return faults, Benign
	}
	return faults, Unrecognized
}

func (p *assembler) amdRecovered(l line, device, ring string) Fault {
	a := metadata.GpuRecoveredOn(record.Early())
	f := p.fault(l, a, device)
	f.Key.Part, f.State = ring, "recovered"
	f.judge(p.catalogue.Fault(metadata.EventGpuRecovered))
	p.putGPU(a.Gpu(), device, vendorAMD)
	a.KerneleventsBlock(ring)
	return f
}

// amdReset reads "GPU reset(5) succeeded!" and "GPU reset succeeded, trying to
// resume", and their failed counterparts; "GPU reset begin!" is neither.
func (p *assembler) amdReset(faults []Fault, l line, device, after string) ([]Fault, Outcome) {
	switch {
	case strings.Contains(after, "succeeded"):
		return append(faults, p.amdRecovered(l, device, "")), Reported
	case strings.Contains(after, "failed"):
		f, _ := p.amdFault(l, device, "reset_failed", "")
		return append(faults, f), Reported
	}
	return faults, Benign
}

// amdTask reads the process of a fault where it stands in a line of its own: "Process
// information: process python pid 1234 thread …" (amdgpu_job.c), "in process python pid 1234
// …" (Linux 6.9 and later, gmc_v9_0.c and its like), and for both since Linux 6.17 "Process
// python pid 1234 …" (amdgpu_vm_print_task_info).
func (l line) amdTask(text string) (pid uint32, name string, known bool) {
	text = strings.TrimLeft(text, " ")
	for _, begin := range []string{"Process information: process ", "in process ", "Process "} {
		if task, found := strings.CutPrefix(text, begin); found {
			pid, name = l.amdProcess("process " + task)
			return pid, name, true
		}
	}
	return 0, "", false
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
