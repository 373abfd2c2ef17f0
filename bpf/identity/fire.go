//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
)

// fireTimeout is how long the events of the self-test may take: they are in the
// ring before the child is gone, so this is for a very slow machine.
const fireTimeout = 5 * time.Second

// fire lets a child execute this program and die, and waits for the events. The
// child is traced, so it stops before its first instruction and nothing of the
// program runs. Where tracing is forbidden, nothing is learned and fired is
// false. It also finds out whether the numbers in proc are the kernel's. Events
// of other processes meanwhile are passed over: the scan that follows finds them.
func (r *ring) fire(proc *reader) (fired bool, err error) {
	marker := "TRACECORE_SELF_TEST=" + rand.Text()
	child, err := startStopped(marker)
	if err != nil {
		return false, nil //nolint:nilerr // tracing is forbidden here: the rung may work all the same
	}
	started, err := r.await(func(e *event) bool {
		return e.kind == kindExec && bytes.Contains(e.environ, []byte(marker)) ||
			e.kind == kindExecNotice && e.pid == uint32(child)
	})
	if err == nil && started.kind == kindExec {
		st, statErr := proc.Stat(started.pid)
		// A machine that is too busy to answer has not shown that the numbers are others.
		proc.SetForeign(!passing(statErr) && (statErr != nil || st.StartTicks != started.startNS/uint64(tick)))
	}
	if err := errors.Join(err, kill(child)); err != nil {
		return false, fmt.Errorf("start of a process: %w", err)
	}
	if !r.withExits {
		return true, nil
	}
	ended, err := r.await(func(e *event) bool { return e.kind == kindExit && e.pid == started.pid })
	if err != nil {
		return false, fmt.Errorf("end of a process: %w", err)
	}
	if ended.signal() != int(unix.SIGKILL) || ended.startNS != started.startNS {
		return false, fmt.Errorf("end of a process: it was killed by signal 9, the event says %d, of a process started at %d instead of %d",
			ended.signal(), ended.startNS, started.startNS)
	}
	if !r.withSenders {
		return true, nil
	}
	if ended.signals == nil || ended.signals.asked.signal != uint32(unix.SIGKILL) || ended.signals.asked.pid != ended.parentPID {
		return false, fmt.Errorf("signal to a process: its parent %d killed it, the event says %+v", ended.parentPID, ended.signals)
	}
	return true, nil
}

// await reads until an event is wanted. It looks by itself now and then, because
// not every event wakes the reader. The event's environment is not kept.
func (r *ring) await(wanted func(*event) bool) (event, error) {
	const often = 5 * time.Millisecond
	for end := time.Now().Add(fireTimeout); time.Now().Before(end); {
		var e event
		err := r.next(&e, time.Now().Add(often))
		switch {
		case err == nil && wanted(&e):
			e.environ = nil
			return e, nil
		case err != nil && !errors.Is(err, errInvalid) && !errors.Is(err, os.ErrDeadlineExceeded):
			return event{}, err
		}
	}
	return event{}, ladder.ErrSilent
}

// startStopped starts this program as a traced child, which stops when execve(2)
// has succeeded (ptrace(2), PTRACE_TRACEME).
func startStopped(environ string) (pid int, err error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	pid, err = syscall.ForkExec("/proc/self/exe", []string{"tracecore-self-test"}, &syscall.ProcAttr{
		Env: []string{environ},
		Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start a traced child: %w", err)
	}
	var status unix.WaitStatus
	if _, err := ignoringEINTR(func() (int, error) { return unix.Wait4(pid, &status, 0, nil) }); err != nil {
		return 0, errors.Join(fmt.Errorf("wait for a traced child: %w", err), kill(pid))
	}
	if !status.Stopped() {
		return 0, fmt.Errorf("the traced child did not stop: wait status %#x", uint32(status))
	}
	return pid, nil
}

// kill ends a child and waits for it.
func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the traced child: %w", err)
	}
	if _, err := ignoringEINTR(func() (int, error) { return unix.Wait4(pid, nil, 0, nil) }); err != nil {
		return fmt.Errorf("wait for the traced child: %w", err)
	}
	return nil
}
