package ncclsocketstall

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// What a silent rank is held by, as far as its system call shows: which remedy fits.
const (
	adviceSleep  = "sleep"  // it sleeps by itself, at a lock, or waits for somebody
	adviceFile   = "file"   // a file does not answer
	adviceThread = "thread" // nor does it a thread beside its main thread
	adviceLoop   = "loop"   // it goes on for longer than the operator allows
	adviceCPU    = "cpu"    // it has no CPU: its limit, or others
	adviceChild  = "child"  // it waits for a child that does not go on
	adviceStop   = "child_stopped"
	adviceThaw   = "child_frozen"
	adviceFree   = "child_traced" // a debugger holds its child
	adviceTrace  = "traced"       // a debugger holds it
	adviceEnded  = "ended"        // its main thread has ended, and its process not
	adviceBehind = "behind"       // it may wait for a rank that no socket shows
	adviceGone   = "gone"         // it has ended, and nobody saw how
	adviceLeft   = "left"         // it has ended with status 0: no verdict of its own says why
)

// advice is the remedy that fits what is known.
func (c *conclusion) advice(p *socketstall.Process) string {
	switch {
	case c.Held == heldStopped:
		return adviceOnStopped(p)
	case c.Held == heldDead && c.Fact.Kind == rule.EventGone:
		return adviceGone
	case c.Held == heldDead && c.Fact.Well:
		return adviceLeft
	}
	if c.Held != heldSilent && c.Held != heldReading || c.Fact != nil {
		return c.Held
	}
	d := &p.Doing
	switch {
	case d.Activity == socketstall.Starved || d.Throttle >= mostly:
		return adviceCPU
	case d.Progress():
		return adviceLoop
	case d.Waits() != "":
		return adviceOnChild(d)
	case blockedOnFile(p):
		return adviceFile
	case d.Thread.TID != 0:
		return adviceThread
	case c.Behind != "":
		return adviceBehind
	case d.Syscall != "":
		return adviceSleep
	}
	return c.Held
}

// adviceOnStopped is the remedy for a rank that is stopped: SIGCONT ends the stop of a signal alone.
func adviceOnStopped(p *socketstall.Process) string {
	switch {
	case p.State == socketstall.Zombie:
		return adviceEnded
	case p.Doing.Traced:
		return adviceTrace
	}
	return heldStopped
}

// adviceOnChild is the remedy for a rank that a child holds up.
func adviceOnChild(d *socketstall.Doing) string {
	switch {
	case d.Held.State == socketstall.Stopped && d.Traced:
		return adviceFree
	case d.Held.State == socketstall.Stopped:
		return adviceStop
	case d.Held.State == socketstall.Frozen:
		return adviceThaw
	case d.Held.Blocked():
		return adviceFile
	}
	return adviceChild
}

// blockedOnFile reports whether a file holds the main thread: it has a path, or the thread
// sleeps so that no signal wakes it, or in a file system.
func blockedOnFile(p *socketstall.Process) bool {
	return strings.HasPrefix(p.Doing.File, "/") || p.State == socketstall.DiskSleep || socketstall.OfFUSE(p.Doing.Channel)
}

// doing says what the process tree of a rank does, in plain words.
func doing(p *socketstall.Process) string {
	d := &p.Doing
	loop := ""
	if d.Silence == socketstall.Overdue && d.Progress() {
		loop = ", for longer than the receiver allows (patience::computing)"
	}
	switch d.Activity {
	case socketstall.Computing:
		return "its main thread computes" + heldBack(d) + loop
	case socketstall.ThreadComputing:
		return "a thread beside its main thread computes" + heldBack(d) + loop
	case socketstall.ChildComputing:
		return "its child process" + named(d.Child, d.ChildPID) + " computes" + heldBack(d) + loop
	case socketstall.IO:
		return transfer(d) + loop
	case socketstall.Starved:
		return starved(p) + heldBack(d) + loop
	}
	if d.Asks() != "" {
		return d.Asks()
	}
	text := "its main thread is " + asleep(p) + ", at 0 % CPU"
	switch waits := d.Waits(); {
	case waits != "" && d.Held.Awaited:
		return waits
	case waits != "":
		return text + "; " + waits
	case d.Thread.TID != 0 && !blockedOnFile(p):
		return text + "; " + d.Thread.Words()
	}
	return text
}

// starved says what could run and has no CPU: what the main thread waits for, where it sleeps.
func starved(p *socketstall.Process) string {
	const lacks = " is ready to run and gets no CPU"
	switch {
	case p.State != socketstall.Sleeping && p.State != socketstall.DiskSleep:
		return "its main thread" + lacks
	case !blockedOnFile(p):
		return "a thread of it, or what serves its files," + lacks
	case strings.HasPrefix(p.Doing.File, "/"):
		return "it waits for " + p.Doing.File + ", and what serves that" + lacks
	}
	return "it waits for a file, and what serves that" + lacks
}

// mostly is the share of periods, in percent, from which on a limit is what slows a rank down.
const mostly = 50

// heldBack says what keeps the CPU from it: the limit of its cgroup or, where none does,
// other processes.
func heldBack(d *socketstall.Doing) string {
	switch {
	case d.Throttle > 0 && d.Milli > 0 && (d.Activity == socketstall.Starved || d.Throttle >= mostly):
		return fmt.Sprintf(": the CPU limit of its cgroup %s, %s, holds it back in %d %% of the periods", d.Limit, cpus(d.Milli), d.Throttle)
	case d.Activity == socketstall.Starved && d.Pressure > 0:
		return fmt.Sprintf(": other processes of its host have them (CPU pressure %d %%)", d.Pressure)
	}
	return ""
}

// cpus is a number of CPUs in words.
func cpus(milli int64) string {
	if milli == 1000 {
		return "1 CPU"
	}
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) + " CPUs"
}

func named(name string, pid int64) string {
	if pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" %s (pid %d)", name, pid)
}

// transfer says what is read or written, and answered.
func transfer(d *socketstall.Doing) string {
	where := ""
	if strings.HasPrefix(d.File, "/") {
		where = d.File
	}
	switch {
	case where == "":
		return "it reads or writes, and is answered"
	case strings.Contains(d.Syscall, "write"):
		return "it writes to " + where
	case strings.Contains(d.Syscall, "read"):
		return "it reads from " + where
	}
	return "it waits for " + where + " (" + d.Syscall + "), and is answered"
}

// asleep says in what a main thread sleeps. In a futex that may be a lock of its own code, or a library that waits
// for other ranks: only a stack tells.
func asleep(p *socketstall.Process) string {
	d := &p.Doing
	where := cmp.Or(d.Syscall, "the kernel")
	if d.Channel != "" {
		where += ", " + d.Channel
	}
	switch {
	case strings.HasPrefix(d.File, "/"):
		return "blocked on " + d.File + " (" + where + ")"
	case socketstall.OfFUSE(d.Channel):
		return "blocked in a FUSE file system that does not answer (" + where + ")"
	case p.State == socketstall.DiskSleep:
		return "blocked in the kernel (" + where + "): a file system or a driver does not answer"
	case d.File != "":
		return "asleep on " + d.File + " (" + where + ")"
	case d.Syscall == "" && d.Channel == "":
		return "asleep"
	}
	return "asleep in " + where
}
