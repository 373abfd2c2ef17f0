package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// parseHost reads what the kernel says about storage, stuck tasks and crashed
// processes.
func (p *Parser) parseHost(faults []Fault, l line) ([]Fault, Outcome) {
	switch {
	case strings.Contains(l.text, "nfs: server ") || strings.Contains(l.text, "lockd: server "):
		return p.parseNFS(faults, l)
	case strings.Contains(l.text, "soft lockup - CPU#"):
		return append(faults, p.softLockup(l)), Reported
	case strings.Contains(l.text, "hard LOCKUP on cpu "):
		return append(faults, p.hardLockup(l)), Reported
	case strings.Contains(l.text, " blocked for more than ") && strings.Contains(l.text, "task "):
		return append(faults, p.hungTask(l)), Reported
	}
	return p.parseCrash(faults, l)
}

// parseNFS reads "nfs: server 10.0.0.9 not responding, still trying" (or "timed
// out") and "nfs: server 10.0.0.9 OK" (net/sunrpc/clnt.c); lockd says the same.
func (p *Parser) parseNFS(faults []Fault, l line) ([]Fault, Outcome) {
	_, rest, _ := strings.Cut(l.text, ": server ")
	server, state, _ := strings.Cut(rest, " ")
	switch {
	case strings.HasPrefix(state, "OK"):
		a := metadata.StorageRecoveredOn(record.Early())
		a.ServerAddress(server)
		f := l.fault(a, server)
		f.judge(p.catalogue.Fault(metadata.EventStorageRecovered))
		f.State = "recovered"
		return append(faults, f), Reported
	case strings.HasPrefix(state, "not responding"):
		a := metadata.StorageNotRespondingOn(record.Early())
		a.ServerAddress(server)
		f := l.fault(a, server)
		f.judge(p.catalogue.Fault(metadata.EventStorageNotResponding))
		return append(faults, f), Reported
	}
	return faults, Unrecognized
}

func (p *Parser) lockup(l line, fault string) (Fault, metadata.HostLockup) {
	a := metadata.HostLockupOn(record.Early())
	a.KerneleventsFault(fault)
	f := l.fault(a, fault)
	f.judge(p.catalogue.Fault(fault))
	return f, a
}

// softLockup reads "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!
// [python:1234]" (kernel/watchdog.c).
func (p *Parser) softLockup(l line) Fault {
	f, a := p.lockup(l, "soft_lockup")
	_, rest, _ := strings.Cut(l.text, "CPU#")
	f.putCPU(a, rest)
	if seconds, found := between(rest, "stuck for ", "s"); found {
		putSeconds(a, seconds)
	}
	if task, found := between(rest, "[", "]"); found {
		f.own(nameAndPID(task))
	}
	return f
}

// hardLockup reads "Watchdog detected hard LOCKUP on cpu 3".
func (p *Parser) hardLockup(l line) Fault {
	f, a := p.lockup(l, "hard_lockup")
	_, rest, _ := strings.Cut(l.text, "hard LOCKUP on cpu ")
	f.putCPU(a, rest)
	return f
}

// hungTask reads "INFO: task python:1234 blocked for more than 120 seconds."
// (kernel/hung_task.c).
func (p *Parser) hungTask(l line) Fault {
	f, a := p.lockup(l, "hung_task")
	before, after, _ := strings.Cut(l.text, " blocked for more than ")
	_, task, _ := strings.Cut(before, "task ")
	f.own(nameAndPID(task))
	putSeconds(a, after)
	return f
}

func (f *Fault) own(name string, pid uint32) {
	f.OwnerName, f.OwnerPID, f.Key.PID = name, pid, pid
}

func (f *Fault) putCPU(a metadata.HostLockup, text string) {
	if cpu, _, ok := number(text); ok {
		f.Key.Code = cpu + 1
		a.KerneleventsCPU(int64(cpu))
	}
}

func putSeconds(a metadata.HostLockup, text string) {
	if seconds, _, ok := number(text); ok {
		a.KerneleventsBlockedSeconds(int64(seconds))
	}
}
