//go:build linux && (amd64 || arm64)

package taskstack

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/taskiter"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// iterator is the source on BPF rungs.
type iterator struct {
	objects bpfObjects
	bound   bool
	buffer  []byte
}

// bufferBytes takes a record with its lines: 48 frames of at most 512 bytes each
// (KSYM_NAME_LEN, include/linux/kallsyms.h). The kernel keeps 8 pages for it (bpf_seq_read,
// kernel/bpf/bpf_iter.c).
const bufferBytes = 32 << 10

// leastStack is THREAD_SIZE on both machines with pages of 4 KiB; it is a page where pages
// are larger (arch/x86/include/asm/page_64_types.h, arch/arm64/include/asm/memory.h).
const leastStack = 16 << 10

func openIterator(bound bool) (_ *iterator, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[bpfVarThreadBytes].Set(uint32(max(leastStack, os.Getpagesize()))); err != nil {
		return nil, err
	}
	collection, err := kerninfo.Load(spec, ebpf.CollectionOptions{})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	defer collection.Close() // closes what it does not take over
	it := &iterator{bound: bound, buffer: make([]byte, bufferBytes)}
	if err := collection.Assign(&it.objects); err != nil {
		return nil, fmt.Errorf("load %s: %w", Name, err)
	}
	return it, nil
}

func (it *iterator) close() error { return it.objects.Close() }

func (it *iterator) read(tid uint32, s *Stack) error {
	bound, wanted := taskiter.Bound{TID: tid}, uint32(0)
	if !it.bound {
		bound, wanted = taskiter.Bound{}, tid
	}
	if tid == 0 {
		return procfs.ErrGone // neither of them is a thread
	}
	if err := it.objects.Wanted.Set(wanted); err != nil {
		return err
	}
	fd, err := taskiter.Start(it.objects.Look, bound)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	have := 0
	for have < len(it.buffer) {
		n, err := unix.Read(fd, it.buffer[have:])
		switch {
		// After a million tasks the kernel asks to be called again (MAX_ITER_OBJECTS).
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0 && have == 0:
			return procfs.ErrGone
		case n == 0:
			return decode(it.buffer[:have], s)
		}
		have += n
	}
	return fmt.Errorf("more than %d bytes about one thread", len(it.buffer))
}
