package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// traceFlag makes this binary a tracer. It is a process of its own: a stop of a traced child is
// told to any thread of the tracer that waits for the child's end (wait_task_stopped,
// kernel/exit.c), so the benchmark would take its rank for dead.
const traceFlag = "-trace"

// trace stops the main thread of a process until standard input ends: all the time, or for a
// moment at each beat. The kernel lets go of it when its tracer ends.
func trace(process, beats string) error {
	pid, err := strconv.Atoi(process)
	if err != nil {
		return err
	}
	beat, err := time.ParseDuration(beats)
	if err != nil {
		return err
	}
	var over atomic.Bool
	ends := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
		close(ends)
	}()
	runtime.LockOSThread() // a tracer is a thread
	for {
		if err := unix.PtraceSeize(pid); err != nil {
			return fmt.Errorf("seize %d: %w", pid, err)
		}
		if err := unix.PtraceInterrupt(pid); err != nil {
			return fmt.Errorf("interrupt %d: %w", pid, err)
		}
		var stop unix.WaitStatus
		if _, err := unix.Wait4(pid, &stop, unix.WALL, nil); err != nil {
			return fmt.Errorf("wait for the stop of %d: %w", pid, err)
		}
		if beat == 0 {
			<-ends
		}
		if over.Load() {
			return nil
		}
		var signal unix.Signal // one that came just then goes on to it
		if s := stop.StopSignal(); s != unix.SIGTRAP {
			signal = s
		}
		if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(signal), 0, 0); errno != 0 {
			return fmt.Errorf("let go of %d: %w", pid, errno)
		}
		time.Sleep(beat)
	}
}

// traced traces the main thread of the trial's rank for some time, and lets go of it.
func (t *trial) traced(lasts, beat time.Duration) error {
	cmd := exec.Command("/proc/self/exe", traceFlag, strconv.Itoa(t.pid(t.rank)), beat.String())
	var said strings.Builder
	cmd.Stderr = &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(lasts)
	if err := stdin.Close(); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}
