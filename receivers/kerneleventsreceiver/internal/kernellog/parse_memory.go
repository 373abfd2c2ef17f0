package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// parseMemory reads what the kernel says about errors of the host's own memory:
// the memory controller's count of them, and what became of the processes whose
// pages were lost.
func (p *Parser) parseMemory(faults []Fault, l line) ([]Fault, Outcome) {
	if _, rest, found := strings.Cut(l.text, "EDAC MC"); found {
		return p.parseEDAC(faults, l, rest)
	}
	if _, rest, found := strings.Cut(l.text, "Memory failure: 0x"); found {
		return p.parseMemoryFailure(faults, l, rest)
	}
	if _, rest, found := strings.Cut(l.text, "MCE: Killing "); found {
		return append(faults, p.memoryKill(l, "", rest)), Reported
	}
	return faults, Unrecognized
}

// parseEDAC reads "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0
// (channel:0 slot:0 page:0x… offset:0x… grain:32 …)", drivers/edac/edac_mc.c,
// edac_ce_error and edac_ue_error. rest begins with the controller's number.
func (p *Parser) parseEDAC(faults []Fault, l line, rest string) ([]Fault, Outcome) {
	controller, rest, ok := number(rest)
	if !ok {
		return faults, Unrecognized
	}
	count, rest, ok := number(strings.TrimPrefix(rest, ": "))
	if !ok {
		return faults, Benign // "EDAC MC0: Giving out device to module …"
	}
	severity := ""
	switch {
	case strings.HasPrefix(rest, " CE "):
		severity = "corrected"
	case strings.HasPrefix(rest, " UE "):
		severity = "uncorrected"
	default:
		return faults, Benign
	}
	_, place, _ := strings.Cut(rest, " on ")
	dimm, _, _ := strings.Cut(place, " (")
	a := metadata.HostMemoryErrorOn(record.Early())
	f := l.fault(a, dimm)
	f.Key.Part, f.Key.Code = severity, controller+1
	f.judge(p.catalogue.Fault("memory_" + severity))
	a.KerneleventsFault("memory_error")
	a.KerneleventsReportedSeverity(severity)
	a.KerneleventsDimm(dimm)
	a.KerneleventsErrorCount(int64(count))
	return append(faults, f), Reported
}

// parseMemoryFailure reads "Memory failure: 0x1d3f5a: Sending SIGBUS to python:4242
// due to hardware memory corruption" and "Memory failure: 0x1d3f5a: forcibly
// killing python:4242 because of failure to unmap corrupted page"
// (mm/memory-failure.c, kill_proc and kill_procs). rest begins with the page.
func (p *Parser) parseMemoryFailure(faults []Fault, l line, rest string) ([]Fault, Outcome) {
	page, rest, _ := strings.Cut(rest, ": ")
	for _, words := range []string{"Sending SIGBUS to ", "forcibly killing "} {
		if task, found := strings.CutPrefix(rest, words); found {
			return append(faults, p.memoryKill(l, page, task)), Reported
		}
	}
	return faults, Benign // what the kernel did with the page
}

// memoryKill is a process that loses memory; task begins with its name and pid.
// Also "MCE: Killing python:4242 due to hardware memory corruption fault at 7f…"
// (arch/x86/mm/fault.c, do_sigbus).
func (p *Parser) memoryKill(l line, page, task string) Fault {
	task, _, _ = strings.Cut(task, " due to ")
	task, _, _ = strings.Cut(task, " because of ")
	a := metadata.HostMemoryErrorOn(record.Early())
	f := l.fault(a, page)
	f.own(nameAndPID(task))
	f.judge(p.catalogue.Fault("memory_failure"))
	a.KerneleventsFault("memory_failure")
	a.KerneleventsReportedSeverity("uncorrected")
	return f
}
