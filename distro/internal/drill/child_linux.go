package drill

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/internal/standin"
)

// childVariable marks a re-execution of this program as the process that a drill
// lets die.
const childVariable = "TRACECORE_DRILL_CHILD"

// childComm is its name: what a verdict calls it. The kernel holds 15 bytes.
const childComm = "tracecore-drill"

// IsChild reports whether this process was started by a drill. A main must ask
// this before anything else, and then only return what Child returns.
func IsChild() bool {
	return os.Getenv(childVariable) != "" || oomkill.IsDrillChild() || fusefault.IsDrillChild() || standin.IsChild()
}

// Child is the whole life of a drill's child. It returns an exit code only when
// nobody ended it.
func Child() int {
	if oomkill.IsDrillChild() {
		return oomkill.DrillChild()
	}
	if fusefault.IsDrillChild() {
		return fusefault.DrillChild()
	}
	if standin.IsChild() {
		return standin.Child()
	}
	if err := waitForDeath(); err != nil {
		fmt.Fprintln(os.Stderr, "drill child:", err)
	}
	return 1
}

// waitForDeath says that it is ready and sleeps until a signal ends it, or its
// parent goes away.
func waitForDeath() error {
	if err := os.WriteFile("/proc/self/comm", []byte(childComm), 0); err != nil {
		return fmt.Errorf("take the name %s: %w", childComm, err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid the core file: %w", err)
	}
	if err := defaultAbort(); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("say that it is ready: %w", err)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// defaultAbort gives SIGABRT back to the kernel: Go's runtime would print every
// goroutine and exit with code 2 (os/signal), and a rank that dies by SIGABRT
// dies by the signal. The zero struct sigaction is SIG_DFL without flags; its
// mask has 8 bytes on every architecture of Linux 64-bit.
func defaultAbort() error {
	var action struct{ handler, flags, restorer, mask uint64 }
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGABRT), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("give SIGABRT back to the kernel: %w", errno)
	}
	return nil
}

// Rank is a running re-execution of this program that plays a rank.
type Rank struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	killed bool
}

// StartRank starts a process with this whole environment and returns when it
// is ready.
func StartRank(environment ...string) (*Rank, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own binary for the drill: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(environment, childVariable+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the drill's child: %w", err)
	}
	r := &Rank{cmd: cmd, stdin: stdin}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		r.Stop()
		return nil, fmt.Errorf("wait for the drill's child: %w", err)
	}
	return r, nil
}

// PID is its process id.
func (r *Rank) PID() int { return r.cmd.Process.Pid }

// Abort lets it die by SIGABRT, and returns when the signal was sent once it is
// gone.
func (r *Rank) Abort() (time.Time, error) {
	r.killed = true
	at := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		return time.Time{}, fmt.Errorf("abort the drill's child: %w", err)
	}
	_ = r.cmd.Wait()
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGABRT {
		return at, fmt.Errorf("the drill's child ended as %q instead of by SIGABRT", r.cmd.ProcessState)
	}
	return at, nil
}

// Stop ends it if it still lives.
func (r *Rank) Stop() {
	if r.killed {
		return
	}
	r.killed = true
	_ = r.stdin.Close()
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}
