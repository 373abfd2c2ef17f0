package kernellog

import (
	"strings"

	"github.com/tracecoreai/tracecore/receivers/internal/record"
	"github.com/tracecoreai/tracecore/receivers/kerneleventsreceiver/internal/metadata"
)

// The writers of what the kernel says about storage and stuck tasks.
var (
	nfsWriters = writers{
		modules:   []string{"sunrpc", "lockd", "nfs", "nfsv3", "nfsv4"},
		functions: []string{"rpc_", "call_", "nlm", "nfs_", "nfs3_", "nfs4_"},
	}
	watchdogWriters = writers{functions: []string{"watchdog", "check_hung_", "hung_task_"}}
)

// parseLockup reads what the watchdogs say about stuck CPUs and tasks.
func (p *assembler) parseLockup(faults []Fault, l line) ([]Fault, Outcome) {
	text := strings.TrimPrefix(strings.TrimPrefix(l.text, "NMI "), "watchdog: ")
	if rest, found := strings.CutPrefix(text, "BUG: soft lockup - CPU#"); found {
		return append(faults, p.softLockup(l, rest)), Reported
	}
	if cpu, found := strings.CutPrefix(withoutCPU(text), "Watchdog detected hard LOCKUP on cpu "); found {
		return append(faults, p.hardLockup(l, cpu)), Reported
	}
	if rest, found := strings.CutPrefix(text, "INFO: task "); found {
		if task, seconds, blocked := blockedTask(rest); blocked {
			return append(faults, p.hungTask(l, task, seconds)), Reported
		}
	}
	return faults, Unrecognized
}

// withoutCPU takes off the CPU that reports, with which Linux 6.11 and later begin the line of
// a hard lockup: "CPU4: ".
func withoutCPU(text string) string {
	if cpu, found := strings.CutPrefix(text, "CPU"); found {
		if _, rest, ok := number(cpu); ok && strings.HasPrefix(rest, ": ") {
			return rest[len(": "):]
		}
	}
	return text
}

// blockedTask splits "python:1234 blocked for more than 120 seconds." Linux 7.1 and later say
// "blocked in I/O wait for more than" where the task waits for I/O. The name of a task can hold
// some of the words; the kernel's own are the last.
func blockedTask(text string) (task, seconds string, ok bool) {
	const lasts = " for more than "
	at := strings.LastIndex(text, lasts)
	if at < 0 {
		return "", "", false
	}
	task, ok = strings.CutSuffix(strings.TrimSuffix(text[:at], " in I/O wait"), " blocked")
	return task, text[at+len(lasts):], ok
}

// parseNFS reads "nfs: server 10.0.0.9 not responding, still trying" (or "timed
// out") and "nfs: server 10.0.0.9 OK" (net/sunrpc/clnt.c); lockd says the same.
func (p *assembler) parseNFS(faults []Fault, l line) ([]Fault, Outcome) {
	rest, found := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(l.text, "nfs"), "lockd"), ": server ")
	if !found || strings.HasPrefix(l.text, ":") {
		return faults, Unrecognized
	}
	server, state, _ := strings.Cut(rest, " ")
	switch {
	case strings.HasPrefix(state, "OK"):
		a := metadata.StorageRecoveredOn(record.Early())
		a.ServerAddress(server)
		f := p.fault(l, a, server)
		f.State = "recovered"
		f.judge(p.catalogue.Fault(metadata.EventStorageRecovered))
		return append(faults, f), Reported
	case strings.HasPrefix(state, "not responding"):
		a := metadata.StorageNotRespondingOn(record.Early())
		a.ServerAddress(server)
		f := p.fault(l, a, server)
		f.judge(p.catalogue.Fault(metadata.EventStorageNotResponding))
		return append(faults, f), Reported
	}
	return faults, Unrecognized
}

func (p *assembler) lockup(l line, fault string) (Fault, metadata.HostLockup) {
	a := metadata.HostLockupOn(record.Early())
	a.KerneleventsFault(fault)
	f := p.fault(l, a, fault)
	f.judge(p.catalogue.Fault(fault))
	return f, a
}

// softLockup reads "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!
// [python:1234]" (kernel/watchdog.c).
func (p *assembler) softLockup(l line, rest string) Fault {
	f, a := p.lockup(l, "soft_lockup")
	f.putCPU(a, rest)
	if seconds, found := between(rest, "stuck for ", "s"); found {
		putSeconds(a, seconds)
	}
	if _, task, found := strings.Cut(rest, "["); found {
		f.own(l.nameAndPID(beforeLast(task, "]")))
	}
	return f
}

// hardLockup reads the number of the CPU that is stuck.
func (p *assembler) hardLockup(l line, cpu string) Fault {
	f, a := p.lockup(l, "hard_lockup")
	f.putCPU(a, cpu)
	return f
}

// hungTask is told of a task and of its seconds (kernel/hung_task.c).
func (p *assembler) hungTask(l line, task, seconds string) Fault {
	f, a := p.lockup(l, "hung_task")
	f.own(l.nameAndPID(task))
	putSeconds(a, seconds)
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
