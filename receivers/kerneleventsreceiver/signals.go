package kerneleventsreceiver

import "strconv"

// firstRealtimeSignal as glibc programs see it (SIGRTMIN; the kernel's 32 and 33
// are glibc's own).
const firstRealtimeSignal = 34

// signalName names a Linux signal (include/uapi/asm-generic/signal.h, the same
// numbers on amd64 and arm64), on whatever system this runs.
func signalName(signal int) string {
	names := [...]string{
		"", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
		"SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
		"SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
	}
	switch {
	case signal > 0 && signal < len(names):
		return names[signal]
	case signal >= firstRealtimeSignal && signal <= 64:
		return "SIGRTMIN+" + strconv.Itoa(signal-firstRealtimeSignal)
	default:
		return "signal " + strconv.Itoa(signal)
	}
}
