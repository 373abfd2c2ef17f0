package record

import (
	"fmt"
	"strconv"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// StampSignal writes what is known of a signal and of who sent it; nothing when there is none.
func (a SignalAttributes) StampSignal(s identity.Signal) {
	if s.Number == 0 {
		return
	}
	a.SignalNumber(int64(s.Number))
	a.SignalName(SignalName(s.Number))
	a.SignalCode(signalCode(s.Number, s.Code))
	if !s.Time.IsZero() {
		a.SignalTimeUnixNano(s.Time.UnixNano())
	}
	a.SignalSenderRelation(string(s.Sender.Relation))
	if s.Sender.PID == 0 {
		return
	}
	a.SignalSenderPid(int64(s.Sender.PID))
	NotZero(a.SignalSenderStartNs, s.Sender.StartNS)
	NotZero(a.SignalSenderParentPid, s.Sender.ParentPID)
	a.SignalSenderName(s.Sender.Comm)
	a.SignalSenderUserID(int64(s.Sender.UserID))
	a.SignalSenderContainerID(s.Sender.ContainerID)
}

// SentBy says who sent a signal, in plain words; "" when that is not known.
func SentBy(s identity.Signal) string {
	switch {
	case s.Number == 0:
		return ""
	case s.Sender.Relation == identity.RelationItself:
		return "the process itself"
	case s.Sender.PID == 0:
		return "the kernel"
	default:
		return fmt.Sprintf("%s (pid %d) of user %d", s.Sender.Comm, s.Sender.PID, s.Sender.UserID)
	}
}

// firstRealtimeSignal as glibc programs see it (SIGRTMIN; the kernel's 32 and 33
// are glibc's own).
const firstRealtimeSignal = 34

// SignalName names a Linux signal (include/uapi/asm-generic/signal.h, the same
// numbers on amd64 and arm64), on whatever system this runs.
func SignalName(signal int) string {
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

// signalCode names why a signal was sent (include/uapi/asm-generic/siginfo.h).
func signalCode(signal, code int) string {
	common := map[int]string{0: "SI_USER", -1: "SI_QUEUE", -2: "SI_TIMER", -3: "SI_MESGQ", -4: "SI_ASYNCIO", -5: "SI_SIGIO", -6: "SI_TKILL", 0x80: "SI_KERNEL"}
	if name, ok := common[code]; ok {
		return name
	}
	faults := map[string][]string{
		"SIGILL":  {"ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP", "ILL_PRVOPC", "ILL_PRVREG", "ILL_COPROC", "ILL_BADSTK", "ILL_BADIADDR"},
		"SIGFPE":  {"FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF", "FPE_FLTUND", "FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB"},
		"SIGSEGV": {"SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR", "SEGV_PKUERR"},
		"SIGBUS":  {"BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"},
	}
	if names := faults[SignalName(signal)]; code > 0 && code <= len(names) {
		return names[code-1]
	}
	return strconv.Itoa(code)
}
