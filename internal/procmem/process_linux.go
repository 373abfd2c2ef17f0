package procmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Process is the memory of one process. It is for one goroutine.
//
// process_vm_readv(2) takes a page fault in the other's memory where a page is not present.
// Where the file of that page lies on a mount that does not answer, the fault does not
// return. So pagemap is asked first, at 1.1 µs (Linux 6.18, 2026-11-22). A page can still go
// between the question and the read, and both wait for the lock of the memory map: so each
// read runs where it can be left behind (procfs.Patiently). After one was, all fail.
//
// Memory of devices is not read: process_vm_readv refuses VM_IO and VM_PFNMAP
// (check_vma_flags, mm/gup.c), where /proc/PID/mem asks the driver.
type Process struct {
	fs     *procfs.FS
	name   string // of its memory, in errors and for reads that are left behind
	kernel kernel
	buffer []byte // never used again once a read was left behind
	parts  []Part // of the buffer
	over   error  // why it cannot be read any more
}

// kernel is what a process is asked through.
type kernel interface {
	// present tells for each page from the one at address on whether it is in memory. It is
	// short where the address space ends, and empty when the process has left its memory.
	present(address uint64, pages int) ([]bool, error)
	copy(parts []Part) (int, error)
	pageSize() uint64
	close() error
}

// Open opens the memory of a process. It needs what a debugger needs: CAP_SYS_PTRACE, or the
// same user. After an exec or the end of the process reads fail with procfs.ErrGone.
func Open(fs *procfs.FS, pid uint32) (*Process, error) {
	name := filepath.Join(fs.Root(), strconv.FormatUint(uint64(pid), 10), "pagemap")
	if fs.Foreign() {
		return nil, fmt.Errorf("open %s: %w", name, procfs.ErrForeign)
	}
	pagemap, err := procfs.Patiently(fs, name, func() (*os.File, error) { return os.Open(name) })
	if err != nil {
		return nil, err
	}
	return &Process{fs: fs, name: name, kernel: &machine{pid: int(pid), pagemap: pagemap}}, nil
}

// Close closes it. Reads fail from then on.
func (p *Process) Close() error {
	p.over = procfs.ErrGone
	return p.kernel.close()
}

// Read is Memory's. Its errors are ErrAbsent and those of procfs.
func (p *Process) Read(address uint64, into []byte) error {
	return p.ReadAll([]Part{{address, into}})
}

// ReadAll reads some parts, MaxParts at most, in their order and as close in time as can be:
// all of them, or it returns an error.
func (p *Process) ReadAll(parts []Part) error {
	if p.over != nil {
		return p.over
	}
	total := 0
	for _, one := range parts {
		total += len(one.Into)
		if err := check(one.Address, len(one.Into)); err != nil {
			return err
		}
	}
	if total > MaxRead || len(parts) > MaxParts {
		return fmt.Errorf("%d parts of %d bytes: %w", len(parts), total, ErrAbsent)
	}
	if total == 0 {
		return nil
	}
	kernel, mine := p.kernel, p.room(parts, total)
	_, err := procfs.Patiently(p.fs, p.name, func() (struct{}, error) { return struct{}{}, read(kernel, mine) })
	if errors.Is(err, procfs.ErrHung) || errors.Is(err, procfs.ErrGone) {
		p.over = err
	}
	if err != nil {
		return err
	}
	got := p.buffer
	for _, one := range parts {
		got = got[copy(one.Into, got):]
	}
	return nil
}

// room is where parts are read to.
func (p *Process) room(parts []Part, total int) []Part {
	if len(p.buffer) < total {
		p.buffer = make([]byte, max(total, chunk))
	}
	p.parts = p.parts[:0]
	left := p.buffer
	for _, one := range parts {
		if n := len(one.Into); n > 0 {
			p.parts = append(p.parts, Part{one.Address, left[:n]})
			left = left[n:]
		}
	}
	return p.parts
}

// read asks for the pages of all parts and copies them. Neighbours on one page are asked
// for once.
func read(k kernel, parts []Part) error {
	size, known, total := k.pageSize(), uint64(0), 0
	for i, one := range parts {
		total += len(one.Into)
		first, last := one.Address/size, (one.Address+uint64(len(one.Into))-1)/size
		if i > 0 && first == known && last == known {
			continue
		}
		if err := present(k, first, last); err != nil {
			return err
		}
		known = last
	}
	n, err := k.copy(parts)
	switch {
	case errors.Is(err, unix.EFAULT), err == nil && n < total:
		return fmt.Errorf("%d bytes at %#x: %w", total, parts[0].Address, ErrAbsent)
	case err != nil:
		return err
	}
	return nil
}

// present refuses pages that are not in memory.
func present(k kernel, first, last uint64) error {
	size, pages := k.pageSize(), int(last-first+1)
	there, err := k.present(first*size, pages)
	if err != nil {
		return err
	}
	for i, is := range there {
		if !is {
			return fmt.Errorf("page %#x: %w", (first+uint64(i))*size, ErrAbsent)
		}
	}
	if len(there) < pages {
		return fmt.Errorf("page %#x: %w", (first+uint64(len(there)))*size, ErrAbsent)
	}
	return nil
}

// machine is the running kernel.
type machine struct {
	pid     int
	pagemap *os.File
}

func (*machine) pageSize() uint64 { return uint64(os.Getpagesize()) }

func (m *machine) close() error { return m.pagemap.Close() }

// pagePresent is bit 63 of an entry (Documentation/admin-guide/mm/pagemap.rst).
const pagePresent = 1 << 63

func (m *machine) present(address uint64, pages int) ([]bool, error) {
	entries := make([]byte, 8*pages)
	n, err := m.pagemap.ReadAt(entries, int64(address/m.pageSize()*8))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n == 0 && m.gone() {
		return nil, unix.ESRCH
	}
	there := make([]bool, n/8)
	for i := range there {
		there[i] = binary.LittleEndian.Uint64(entries[8*i:])&pagePresent != 0
	}
	return there, nil
}

// gone tells the end of the address space from the end of the process: of memory that nobody
// uses any more, not even the first page is told (pagemap_read, fs/proc/task_mmu.c).
func (m *machine) gone() bool {
	var entry [8]byte
	n, err := m.pagemap.ReadAt(entry[:], 0)
	return n == 0 && errors.Is(err, io.EOF)
}

func (m *machine) copy(parts []Part) (int, error) {
	local, other := make([]unix.Iovec, len(parts)), make([]unix.RemoteIovec, len(parts))
	for i, one := range parts {
		local[i].Base = &one.Into[0]
		local[i].SetLen(len(one.Into))
		other[i] = unix.RemoteIovec{Base: uintptr(one.Address), Len: len(one.Into)}
	}
	return unix.ProcessVMReadv(m.pid, local, other, 0)
}
