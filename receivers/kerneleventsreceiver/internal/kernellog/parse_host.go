package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/bpf/kmsg"
)

// parseHost reads what the kernel says about storage, stuck tasks and crashed
// processes.
func (p *Parser) parseHost(faults []Fault, l line) ([]Fault, Outcome) {
	switch {
	case strings.Contains(l.text, "nfs: server "):
		return p.parseNFS(faults, l)
	case strings.Contains(l.text, "soft lockup - CPU#"):
		return append(faults, p.softLockup(l)), Reported
	case strings.Contains(l.text, "hard LOCKUP on cpu "):
		return append(faults, p.hardLockup(l)), Reported
	case strings.Contains(l.text, " blocked for more than ") && strings.Contains(l.text, "task "):
		return append(faults, p.hungTask(l)), Reported
	case strings.Contains(l.text, ": segfault at ") || strings.Contains(l.text, " general protection fault"):
		return p.parseCrash(faults, l)
	}
	return faults, Unrecognized
}

// parseNFS reads "nfs: server 10.0.0.9 not responding, still trying" (or "timed
// out") and "nfs: server 10.0.0.9 OK" (net/sunrpc/clnt.c).
func (p *Parser) parseNFS(faults []Fault, l line) ([]Fault, Outcome) {
	_, rest, _ := strings.Cut(l.text, "nfs: server ")
	server, state, _ := strings.Cut(rest, " ")
	event := EventStorageNotResponding
	switch {
	case strings.HasPrefix(state, "OK"):
		event = EventStorageRecovered
	case !strings.HasPrefix(state, "not responding"):
		return faults, Unrecognized
	}
	f := l.fault(event, server)
	f.judge(p.catalogue.Fault(event))
	if event == EventStorageRecovered {
		f.State = "recovered"
	}
	f.put(AttributeServer, server)
	return append(faults, f), Reported
}

func (p *Parser) lockup(l line, fault string) Fault {
	f := l.fault(EventHostLockup, fault)
	f.judge(p.catalogue.Fault(fault))
	f.put(AttributeFault, fault)
	return f
}

// softLockup reads "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!
// [python:1234]" (kernel/watchdog.c).
func (p *Parser) softLockup(l line) Fault {
	f := p.lockup(l, "soft_lockup")
	_, rest, _ := strings.Cut(l.text, "CPU#")
	f.putCPU(rest)
	if seconds, found := between(rest, "stuck for ", "s"); found {
		f.putSeconds(seconds)
	}
	if task, found := between(rest, "[", "]"); found {
		f.own(nameAndPID(task))
	}
	return f
}

// hardLockup reads "Watchdog detected hard LOCKUP on cpu 3".
func (p *Parser) hardLockup(l line) Fault {
	f := p.lockup(l, "hard_lockup")
	_, rest, _ := strings.Cut(l.text, "hard LOCKUP on cpu ")
	f.putCPU(rest)
	return f
}

// hungTask reads "INFO: task python:1234 blocked for more than 120 seconds."
// (kernel/hung_task.c).
func (p *Parser) hungTask(l line) Fault {
	f := p.lockup(l, "hung_task")
	before, after, _ := strings.Cut(l.text, " blocked for more than ")
	_, task, _ := strings.Cut(before, "task ")
	f.own(nameAndPID(task))
	f.putSeconds(after)
	return f
}

func (f *Fault) own(name string, pid uint32) {
	f.OwnerName, f.OwnerPID, f.Key.PID = name, pid, pid
}

func (f *Fault) putCPU(text string) {
	if cpu, _, ok := number(text); ok {
		f.Key.Code = cpu + 1
		f.putInt(AttributeCPU, int64(cpu))
	}
}

func (f *Fault) putSeconds(text string) {
	if seconds, _, ok := number(text); ok {
		f.putInt(AttributeBlockedSeconds, int64(seconds))
	}
}

// parseCrash reads "python[1234]: segfault at 10 ip … error 4 in libnccl.so.2[…]"
// and "traps: python[1234] general protection fault ip:… in libcuda.so.1[…]".
// Only a crash inside a library of the catalogue is a fault of interest here;
// the end of the process is reported by its exit anyway.
func (p *Parser) parseCrash(faults []Fault, l line) ([]Fault, Outcome) {
	kind, before := "segfault", ""
	before, rest, found := strings.Cut(l.text, ": segfault at ")
	if !found {
		before, rest, _ = strings.Cut(l.text, " general protection fault")
		kind = "general_protection"
	}
	library, _ := between(rest, " in ", "[")
	if !p.catalogue.IsAccelerationLibrary(library) {
		return faults, Benign
	}
	f := l.fault(EventProcessSegfault, library)
	f.judge(p.catalogue.Fault(EventProcessSegfault))
	f.put(AttributeFault, kind)
	f.put(AttributeLibrary, library)
	f.own(crashedTask(before))
	if l.Writer == kmsg.WriterKernel && l.PID != 0 {
		f.own(f.OwnerName, l.PID) // the line has the thread's id, the writer is its process
	}
	return append(faults, f), Reported
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
