//go:build linux && (amd64 || arm64)

package taskstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// fireTimeout is how long the thread of the self-test may take to fall asleep.
const fireTimeout = 10 * time.Second

// Fire has a thread of this process sleep in a read and looks at it, as Open did.
func (p *Probe) Fire(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := selfTest(ctx, p.source, p.report.Rung != RungWchan, procfs.Open("/proc"))
	if canceled := ctx.Err(); errors.Is(canceled, context.Canceled) {
		return fmt.Errorf("fire %s: %w", Name, canceled)
	}
	last := &p.report.Attempts[len(p.report.Attempts)-1]
	if err != nil {
		*last = ladder.Classify(last.Rung, err)
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	last.Fired = true
	return nil
}

// selfTest asks src for a thread that sleeps in a read of a pipe. Its registers must be those
// that /proc shows, its kernel stack must have the read.
func selfTest(ctx context.Context, src source, kernel bool, fs *procfs.FS) error {
	ctx, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	sleeper, err := sleep()
	if err != nil {
		return err
	}
	defer sleeper.wake()
	oracle := &proc{fs, false}
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		var s, shown Stack
		if err := errors.Join(src.read(sleeper.tid, &s), oracle.read(sleeper.tid, &shown)); err != nil {
			return err
		}
		err := same(&s, &shown, kernel)
		if err == nil {
			return nil
		}
		select {
		case <-retry.C: // it may not sleep yet
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ladder.ErrSilent, err)
		}
	}
}

// same compares a stack with what /proc shows of the thread. A system call leaves the
// program counter behind it.
func same(s, shown *Stack, kernel bool) error {
	for name, number := range map[string]int{"stack pointer": sp, "program counter": pc} {
		if s.Registers.Known&(1<<number) == 0 || shown.Registers.Known&(1<<number) == 0 {
			return fmt.Errorf("the %s of a thread in a read is not known", name)
		}
		if got, want := s.Registers.Values[number], shown.Registers.Values[number]; got != want {
			return fmt.Errorf("the %s of a thread in a read is %#x, /proc says %#x", name, got, want)
		}
	}
	switch {
	case s.PID != uint32(os.Getpid()) || s.State != 'S' || !s.Still || s.KernelThread:
		return fmt.Errorf("a thread of process %d that sleeps is one of process %d in state %c (still: %t, of the kernel: %t)",
			os.Getpid(), s.PID, s.State, s.Still, s.KernelThread)
	case kernel && !slices.ContainsFunc(s.Kernel, func(f Function) bool { return strings.Contains(f.Name, "pipe_read") }):
		return fmt.Errorf("a thread that reads a pipe is in %v", s.Kernel)
	}
	return nil
}

// sleeper is a thread in a read of a pipe that nobody writes to.
type sleeper struct {
	tid  uint32
	pipe [2]int
	done chan struct{}
}

func sleep() (*sleeper, error) {
	s := &sleeper{done: make(chan struct{})}
	if err := unix.Pipe2(s.pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	tid := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with it
		defer close(s.done)
		tid <- unix.Gettid()
		for {
			if _, err := unix.Read(s.pipe[0], make([]byte, 1)); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	s.tid = uint32(<-tid)
	return s, nil
}

func (s *sleeper) wake() {
	_ = unix.Close(s.pipe[1])
	<-s.done
	_ = unix.Close(s.pipe[0])
}
