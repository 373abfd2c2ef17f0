package rule

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// StopAttributes are what JobStopped reads of process.exit, and JobAsked of process.asked.
var StopAttributes = []string{
	"process.exit.signal", "process.exit.code", "process.exit.spared_ranks", "process.exit.inherited_identity", "process.exit.helper", "process.asked.spared_ranks", "signal.number", "signal.sender.relation",
}

const (
	sigint  = 2
	sigkill = 9
	sigterm = 15
)

// asks are the signals by which owners and schedulers ask a process to end: SIGHUP, SIGINT, SIGQUIT,
// SIGUSR1, SIGUSR2 and SIGTERM. Slurm sends what --signal says.
var asks = []int64{1, 2, 3, 10, 12, 15}

// crashes are the signals of a program that failed (SIGILL, SIGBUS, SIGFPE, SIGSEGV), asked to end or not.
var crashes = []int64{4, 7, 8, 11}

// JobStopped reports whether a record of the end of a rank says that somebody ends its job: it was asked
// to end, and no other rank of the host was left out, or it was killed by its container's or its
// scheduler's administrator. rank_exit says so of single ends (its evidence stop, ended and ordered).
func JobStopped(exit pcommon.Map) bool {
	if Text(exit, "process.exit.inherited_identity") == "true" || Text(exit, "process.exit.helper") == "true" {
		return false // workers are ended all the time
	}
	spared, _ := Integer(exit, "process.exit.spared_ranks")
	signal, _ := Integer(exit, "process.exit.signal")
	code, _ := Integer(exit, "process.exit.code")
	sent, known := Integer(exit, "signal.number")
	by := Text(exit, "signal.sender.relation")
	switch {
	case spared > 0, slices.Contains(crashes, signal), by == "itself":
		return false
	case signal == sigkill:
		return sent == sigkill && (by == "container" || by == "scheduler")
	case known && sent != 0:
		return slices.Contains(asks, sent)
	}
	return slices.Contains(asks, signal) || slices.Contains(asks, code-128) // 128 + signal: what a shell passes on
}

// owners are the senders that may end a job: what starts its ranks, who acts on their container, a terminal.
var owners = []string{"scheduler", "launcher", "ancestor", "container", "kernel"}

// JobAsked reports whether a record of a rank that was asked to end, and lives, says that somebody ends its job: no
// other rank of the host was left out. SIGTERM and SIGINT ask that by themselves. The other signals do where they
// come from one of its owners: anybody may send SIGUSR1 to see stacks.
func JobAsked(asked pcommon.Map) bool {
	spared, _ := Integer(asked, "process.asked.spared_ranks")
	sent, _ := Integer(asked, "signal.number")
	by := Text(asked, "signal.sender.relation")
	switch {
	case spared > 0, by == "itself", Text(asked, "tracecore.trust") == "foreign":
		return false
	case sent == sigterm, sent == sigint:
		return true
	}
	return slices.Contains(asks, sent) && slices.Contains(owners, by)
}
