//go:build linux

package ladder

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Problem is an error whose outcome the rung itself knows better than Classify
// could guess.
type Problem struct {
	Outcome probe.Outcome
	Reason  string
	Hint    string
	Err     error // the cause, may be nil
}

// Error is the reason, with the cause when there is one.
func (p *Problem) Error() string {
	if p.Err == nil {
		return p.Reason
	}
	return fmt.Sprintf("%s: %v", p.Reason, p.Err)
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Classify says what the error of one rung means: absent, forbidden, silent or
// broken, and what an operator can do.
func Classify(rung string, err error) probe.Attempt {
	return classify(rung, err, lockdownMode())
}

func classify(rung string, err error, lockdown string) probe.Attempt {
	a := probe.Attempt{Rung: rung, Outcome: probe.Broken, Reason: oneLine(err)}
	var known *Problem
	switch {
	case errors.As(err, &known):
		a.Outcome, a.Hint = known.Outcome, known.Hint
	case errors.Is(err, ErrSilent):
		a.Outcome = probe.Silent
	case isDenied(err, lockdown):
		caps, _ := kerninfo.Capabilities(os.DirFS("/")) // all of them where they are not known
		a.Outcome, a.Hint = probe.Denied, denialHint(lockdown, caps)
	case errors.Is(err, btf.ErrNotFound), errors.Is(err, os.ErrNotExist),
		errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP):
		a.Outcome, a.Hint = probe.Unsupported, btfHint()
	default:
		a.Hint = "this is a defect: report it with the kernel version and the output of bpf-check -o json"
	}
	return a
}

// isDenied tells a refusal from a defect. The verifier says EACCES for a program
// that is wrong, and under lockdown=confidentiality EINVAL for a right one, since
// bpf_probe_read_kernel then does not exist (kernel/trace/bpf_trace.c).
func isDenied(err error, lockdown string) bool {
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		return lockdown == confidentiality || errors.Is(err, unix.EPERM)
	}
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

func btfHint() string {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err == nil {
		return ""
	}
	return "this kernel has no readable /sys/kernel/btf/vmlinux: use one built with CONFIG_DEBUG_INFO_BTF"
}

// oneLine keeps the first line of an error: a verifier log has thousands.
func oneLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	const most = 400
	if len(line) > most {
		line = line[:most] + "…"
	}
	return strings.ToValidUTF8(line, "�")
}

// Capability numbers, include/uapi/linux/capability.h.
const (
	capSysAdmin = 21
	capPerfmon  = 38
	capBPF      = 39
)

// confidentiality is the lockdown mode that hides kernel memory from root.
const confidentiality = "confidentiality"

// denialHint names the likeliest of the things that forbid a BPF program.
func denialHint(lockdown string, caps uint64) string {
	has := func(c uint) bool { return caps&(1<<c) != 0 }
	switch {
	case lockdown == confidentiality:
		return "lockdown=confidentiality forbids programs that read kernel memory: boot with lockdown=integrity or none"
	case !has(capSysAdmin) && (!has(capBPF) || !has(capPerfmon)):
		return "give the process CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN): in Kubernetes, a privileged container"
	default:
		return "the kernel refuses this kind of program although the capabilities are there: look for a security module, seccomp profile or hardened kernel"
	}
}

// lockdownMode is the active mode of the lockdown module, "" when there is none.
// The file reads "none [integrity] confidentiality".
func lockdownMode() string {
	raw, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(raw), "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}
