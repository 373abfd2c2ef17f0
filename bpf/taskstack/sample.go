//go:build linux && (amd64 || arm64)

package taskstack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sampleEvery = time.Millisecond // of CPU time of the thread
	stackBytes  = 32 << 10         // of user memory; a sample is at most 64 KiB
	ringPages   = 16               // a power of two: room for one sample, after records of other kinds
)

// Sample waits until a thread has run for a millisecond, and tells where it then is, with the
// memory of its stack. It needs no BPF, and stops nothing. It returns ErrAsleep when the
// thread does not run long enough before patience ends.
func Sample(tid uint32, patience time.Duration, s *Stack) error {
	ring, err := openRing(tid)
	if err != nil {
		return fmt.Errorf("sample thread %d: %w", tid, err)
	}
	defer ring.close()
	if err := ring.wait(time.Now().Add(patience), s); err != nil {
		return fmt.Errorf("sample thread %d: %w", tid, err)
	}
	return nil
}

// ring is perf's, of one thread.
type ring struct {
	fd     int
	memory []byte
}

func openRing(tid uint32) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(sampleEvery.Nanoseconds()), Wakeup: 1,
		Sample_type:      unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: sampleMask, Sample_stack_user: stackBytes,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, int(tid), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("perf_event_open", err)
	}
	memory, err := unix.Mmap(fd, 0, (1+ringPages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), unix.Close(fd))
	}
	r := &ring{fd, memory}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		r.close()
		return nil, os.NewSyscallError("PERF_EVENT_IOC_ENABLE", err)
	}
	return r, nil
}

func (r *ring) close() {
	_ = unix.Munmap(r.memory) // neither can fail on what openRing made
	_ = unix.Close(r.fd)
}

func (r *ring) wait(deadline time.Time, s *Stack) error {
	poll := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return ErrAsleep
		}
		_, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if found, err := findSample(r.records(), s); found || err != nil {
			return err
		}
		if poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			return unix.ESRCH // the thread has ended
		}
	}
}

// records is what the kernel has written. Nobody takes anything off, so it begins at the
// start of the ring and the kernel never goes round its end.
func (r *ring) records() []byte {
	page := os.Getpagesize()
	header := (*unix.PerfEventMmapPage)(unsafe.Pointer(&r.memory[0]))
	head := atomic.LoadUint64(&header.Data_head)
	return r.memory[page : page+int(min(head, uint64(ringPages*page)))]
}

// Loop is the program counter of a thread, and a hash of all its other registers. Two samples of a
// thread that runs have the same hash where it goes round and counts nothing: it waits.
func (r *Registers) Loop() (counter, others uint64) {
	if r.Known&(1<<pc) == 0 {
		return 0, 0
	}
	h := fnv.New64a()
	for number, value := range r.Values {
		if number != pc {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, value))
		}
	}
	return r.Values[pc], h.Sum64()
}
