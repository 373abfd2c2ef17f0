package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// crash is a process that died by a fault, as the first part of its line says.
type crash struct {
	kind, name string
	pid        uint32
	text       string
}

// parseCrash reads "python[1234]: segfault at 10 ip … error 4 in libnccl.so.2[…]"
// (arch/x86/mm/fault.c), "traps: python[1234] general protection fault ip:… in
// libcuda.so.1[…]" (arch/x86/kernel/traps.c) and "python[1234]: unhandled
// exception: … in libc10.so[…]" (arch/arm64/kernel/traps.c). The place, " in
// libnccl.so.2[…]", is a KERN_CONT fragment and can come by itself. Only a crash
// inside a library of the catalogue is of interest here; the end of the process
// is reported by its exit anyway.
func (p *Parser) parseCrash(faults []Fault, l line) ([]Fault, Outcome) {
	c, found := beginCrash(l)
	if found {
		p.crashes.set(l.PID, c, l.Time)
	} else if c, found = p.crashes.recent(l.PID, l.Time); found && strings.HasPrefix(l.text, "in ") {
		c.text += " " + l.text
	} else {
		return faults, Unrecognized
	}
	library := crashPlace(c.text)
	if library != "" {
		p.crashes.remove(l.PID)
	}
	if !p.catalogue.IsAccelerationLibrary(library) {
		return faults, Benign
	}
	return append(faults, p.crashFault(l, c, library)), Reported
}

func (p *Parser) crashFault(l line, c crash, library string) Fault {
	a := metadata.ProcessSegfaultOn(record.Early())
	f := l.fault(a, library)
	f.Text = c.text
	f.judge(p.catalogue.Fault(metadata.EventProcessSegfault))
	a.KerneleventsFault(c.kind)
	a.KerneleventsLibrary(library)
	f.own(c.name, c.pid)
	if l.Writer == kmsg.WriterKernel && l.PID != 0 {
		f.own(c.name, l.PID) // the line has the thread's id, the writer is its process
	}
	return f
}

func beginCrash(l line) (crash, bool) {
	for _, shape := range [...]struct{ words, kind string }{
		{": segfault at ", "segfault"},
		{" general protection fault ip:", "general_protection"},
		{": unhandled exception: ", "unhandled_exception"},
	} {
		if before, _, found := strings.Cut(l.text, shape.words); found {
			name, pid := crashedTask(before)
			return crash{kind: shape.kind, name: name, pid: pid, text: l.text}, true
		}
	}
	return crash{}, false
}

// crashPlace returns the file of " in libnccl.so.2[7f5d5c000000+1200000]".
func crashPlace(text string) string {
	for rest := text; ; {
		_, after, found := strings.Cut(rest, " in ")
		if !found {
			return ""
		}
		if file, _, found := strings.Cut(after, "["); found && !strings.Contains(file, " ") {
			return file
		}
		rest = after
	}
}

// crashedTask reads "comm[pid]" at the end of text.
func crashedTask(text string) (name string, pid uint32) {
	open := strings.LastIndexByte(text, '[')
	if open < 0 {
		return "", 0
	}
	pid, _, ok := number(text[open+1:])
	if !ok {
		return "", 0
	}
	return strings.TrimPrefix(text[:open], "traps: "), pid
}
