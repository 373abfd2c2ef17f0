package kernellog

import "strings"

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
