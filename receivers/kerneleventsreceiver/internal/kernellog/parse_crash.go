package kernellog

import (
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// crashWriters are the handlers of faults of processes (arch/x86/mm/fault.c,
// arch/x86/kernel/traps.c, arch/arm64/kernel/traps.c), and print_vma_addr, which adds
// the place.
var crashWriters = writers{functions: []string{
	"show_signal", "__bad_area", "bad_area", "do_user_addr_fault", "exc_", "do_trap", "do_error_trap", "do_general_protection", "gp_user_force_sig",
	"arm64_", "do_mem_abort", "print_vma_addr",
}}

// crash is a process that died by a fault, as the first part of its line says.
type crash struct {
	kind, name string
	pid        uint32
	text       string
	place      string // the end of the text, which says where
}

// parseCrash reads "python[1234]: segfault at 10 ip … error 4 in libnccl.so.2[…]"
// (arch/x86/mm/fault.c), "traps: python[1234] general protection fault ip:… in
// libcuda.so.1[…]", "traps: python[1234] trap invalid opcode ip:…" (arch/x86/kernel/traps.c) and "python[1234]: unhandled
// exception: … in libc10.so[…]" (arch/arm64/kernel/traps.c). The place, " in
// libnccl.so.2[…]", is a KERN_CONT fragment and can come by itself. Only a crash
// inside a library of the catalogue is of interest here; the end of the process
// is reported by its exit anyway.
func (p *assembler) parseCrash(faults []Fault, l line) ([]Fault, Outcome) {
	c, found := beginCrash(l)
	if found {
		p.crashes.set(l.PID, c, l.Time)
	} else if c, found = p.crashes.recent(l.PID, l.Time); found && strings.HasPrefix(l.text, "in ") {
		c.text, c.place = c.text+" "+l.text, l.text
	} else {
		return faults, Unrecognized
	}
	library := crashPlace(c.place)
	if library != "" {
		p.crashes.remove(l.PID)
	}
	if !p.catalogue.IsAccelerationLibrary(library) {
		return faults, Benign
	}
	return append(faults, p.crashFault(l, c, library)), Reported
}

func (p *assembler) crashFault(l line, c crash, library string) Fault {
	a := metadata.ProcessSegfaultOn(record.Early())
	f := p.fault(l, a, library)
	f.Text = c.text
	f.judge(p.catalogue.Fault(metadata.EventProcessSegfault))
	a.KerneleventsFault(c.kind)
	a.KerneleventsLibrary(library)
	a.KerneleventsLibraryOffset(crashOffset(c.text))
	f.own(c.name, c.pid)
	if l.Writer == kmsg.WriterKernel && l.PID != 0 {
		f.own(c.name, l.PID) // the line has the thread's id, the writer is its process
	}
	return f
}

// beginCrash reads the name and number of a process, which come first, and then the
// kernel's own words. A name of 15 bytes can hold the words, not a number before them.
func beginCrash(l line) (crash, bool) {
	for _, shape := range [...]struct{ words, kind string }{
		{"]: segfault at ", "segfault"},
		{"] general protection fault ip:", "general_protection"},
		{"] trap invalid opcode ip:", "invalid_opcode"},    // SIGILL: an instruction that the CPU has not
		{"]: unhandled exception:", "unhandled_exception"}, // the end of its first fragment
	} {
		before, after, found := strings.Cut(l.text, shape.words)
		if name, pid, isTask := crashedTask(before); found && isTask {
			return crash{kind: shape.kind, name: name, pid: pid, text: l.text, place: after}, true
		}
	}
	return crash{}, false
}

// crashPlace returns the file of "in libnccl.so.2[7f5d5c000000+1200000]". Before it the
// kernel prints numbers and words of its own; the name of the file can hold anything.
func crashPlace(text string) string {
	_, place, _ := strings.Cut(" "+text, " in ")
	file, _, found := strings.Cut(place, "[")
	if !found || strings.Contains(file, " ") {
		return ""
	}
	return file
}

// crashOffset returns where in the file a crash was, "" where the line does not say. Since
// Linux 6.11 it stands in the brackets (mm/memory.c, print_vma_addr: "[offset,start+size]");
// before, it is the instruction pointer less the start of the mapping.
func crashOffset(text string) string {
	_, place, _ := strings.Cut(text, " in ")
	_, place, _ = strings.Cut(place, "[")
	place, _, _ = strings.Cut(place, "]")
	if offset, _, found := strings.Cut(place, ","); found {
		return hexOf(addressOf(offset))
	}
	start, _, _ := strings.Cut(place, "+")
	pointer, found := between(text, " ip ", " ")
	if !found {
		pointer, found = between(text, " ip:", " ")
	}
	at, ok1 := addressOf(pointer)
	base, ok2 := addressOf(start)
	return hexOf(at-base, found && ok1 && ok2 && at >= base)
}

// addressOf reads an address, which comes without 0x.
func addressOf(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 16, 64)
	return n, err == nil
}

func hexOf(n uint64, known bool) string {
	if !known {
		return ""
	}
	return "0x" + strconv.FormatUint(n, 16)
}

// crashedTask reads "comm[pid".
func crashedTask(text string) (name string, pid uint32, ok bool) {
	text = strings.TrimPrefix(text, "traps: ")
	open := strings.LastIndexByte(text, '[')
	if open < 0 || open > maxComm {
		return "", 0, false
	}
	pid, rest, ok := number(text[open+1:])
	return text[:open], pid, ok && rest == ""
}

// maxComm is the length of a name of a task, TASK_COMM_LEN without the NUL. A byte
// that is not UTF-8 has become three.
const maxComm = 15 * 3
