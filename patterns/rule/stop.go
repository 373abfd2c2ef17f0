package rule

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// StopAttributes are what JobStopped reads of process.exit.
var StopAttributes = []string{
	"process.exit.signal", "process.exit.code", "process.exit.spared_ranks", "process.exit.inherited_identity", "process.exit.helper", "signal.number", "signal.sender.relation",
}

const sigkill = 9

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
