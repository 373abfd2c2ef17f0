package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// The writers of memory errors. Drivers of memory controllers hand what they found to
// edac_mc.c, which prints it.
var (
	edacWriters          = writers{modules: []string{"edac_core"}, functions: []string{"edac_"}}
	memoryFailureWriters = writers{functions: []string{
		"memory_failure", "__memory_failure", "try_memory_failure", "kill_", "collect_procs", "add_to_kill", "__add_to_kill", "action_result", "page_action",
		"identify_page_state", "me_", "hwpoison_", "do_sigbus", "mm_fault_error", "do_user_addr_fault", "exc_page_fault",
	}}
)

// parseEDAC reads "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0
// (channel:0 slot:0 page:0x… offset:0x… grain:32 …)", drivers/edac/edac_mc.c,
// edac_ce_error and edac_ue_error.
func (p *assembler) parseEDAC(faults []Fault, l line) ([]Fault, Outcome) {
	rest, found := strings.CutPrefix(l.text, "EDAC MC")
	controller, rest, ok := number(rest)
	if !found || !ok {
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
	f := p.fault(l, a, dimm)
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
// (mm/memory-failure.c, kill_proc and kill_procs), and "MCE: Killing python:4242 due to
// hardware memory corruption fault at 7f…" (arch/x86/mm/fault.c, do_sigbus).
func (p *assembler) parseMemoryFailure(faults []Fault, l line) ([]Fault, Outcome) {
	if task, found := killedForMemory(l); found {
		return append(faults, p.memoryKill(l, "", task)), Reported
	}
	rest, found := strings.CutPrefix(l.text, "Memory failure: 0x")
	if !found {
		return faults, Unrecognized
	}
	page, rest, _ := strings.Cut(rest, ": ")
	for _, words := range []string{"Sending SIGBUS to ", "forcibly killing "} {
		if task, found := strings.CutPrefix(rest, words); found {
			return append(faults, p.memoryKill(l, page, task)), Reported
		}
	}
	return faults, Benign // what the kernel did with the page
}

// killedForMemory reads "MCE: Killing python:4242 due to hardware memory corruption fault at
// 7f…". The function that prints it also prints crashes, where it holds their handler, and a
// crash begins with a name of 15 bytes: the kernel's own words must follow such a name.
func killedForMemory(l line) (task string, found bool) {
	rest, found := strings.CutPrefix(strings.TrimPrefix(l.Text, "mce: "), "MCE: Killing ")
	task, _, ends := strings.Cut(rest, " due to hardware memory corruption fault at ")
	name, pid := line{}.nameAndPID(task)
	return task, found && ends && pid != 0 && len(name) <= maxComm
}

// memoryKill is a process that loses memory; task begins with its name and pid. The
// name can hold anything, so the kernel's own words are looked for from the end.
func (p *assembler) memoryKill(l line, page, task string) Fault {
	task = beforeLast(beforeLast(task, " due to "), " because of ")
	a := metadata.HostMemoryErrorOn(record.Early())
	f := p.fault(l, a, page)
	f.own(l.nameAndPID(task))
	f.judge(p.catalogue.Fault("memory_failure"))
	a.KerneleventsFault("memory_failure")
	a.KerneleventsReportedSeverity("uncorrected")
	return f
}
