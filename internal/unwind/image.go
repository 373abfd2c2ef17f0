package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"github.com/tracecoreai/tracecore/internal/elfhead"
)

// image is an ELF file, as far as one stack needs it: what is mapped, its unwind table and its
// dynamic symbols. Section headers are not read: a stripped file may have none. Whatever the
// file says is a claim of who made it.
type image struct {
	file     io.ReaderAt
	arch     *arch
	loads    []elf.Prog64
	table    elf.Prog64 // .eh_frame_hdr, Filesz is 0 where there is none
	dynamic  elf.Prog64
	searched *search
	symbols  *symbols
	unnamed  error // why symbols cannot be read
	known    *lookups
	begin    uint64 // where the program begins; 0 where it does not
}

// lookups are the answers about addresses of all images: what a thread waits in is asked again
// and again.
type lookups struct {
	rows  map[lookup]row
	names map[lookup]symbol
}

type lookup struct {
	image   *image
	address uint64
}

func newLookups() *lookups { return &lookups{map[lookup]row{}, map[lookup]symbol{}} }

// room forgets all when they are too many.
func (l *lookups) room() {
	if len(l.rows) >= maxLookups || len(l.names) >= maxLookups {
		clear(l.rows)
		clear(l.names)
	}
}

// Bounds on what a file may make us do.
const (
	maxLookups = 1 << 12 // addresses whose rows and names are kept, of all files: 3 MiB
	maxEntry   = 1 << 14 // bytes of a CIE or an FDE
)

var errMachine = errors.New("it is no ELF file of this machine")

func newImage(file io.ReaderAt, machine *arch, known *lookups) (*image, error) {
	f, err := elfhead.Read(file)
	switch {
	case err != nil:
		return nil, err
	case f.Machine != machine.machine:
		return nil, errMachine
	}
	i := &image{file: file, arch: machine, known: known, begin: f.Entry}
	for _, h := range f.Segments {
		switch elf.ProgType(h.Type) {
		case elf.PT_LOAD:
			i.loads = append(i.loads, h)
		case elf.PT_GNU_EH_FRAME:
			i.table = h
		case elf.PT_DYNAMIC:
			i.dynamic = h
		}
	}
	return i, nil
}

// address is where the linker put what lies at an offset of the file.
func (i *image) address(offset uint64) (uint64, bool) {
	for _, l := range i.loads {
		// A mapping begins at a page, so it may begin before its segment.
		if start := l.Off &^ (i.arch.page - 1); l.Flags&uint32(elf.PF_X) != 0 && offset >= start && offset < l.Off+l.Filesz {
			return l.Vaddr - l.Off + offset, true
		}
	}
	return 0, false
}

// maxStart is more than the bytes of any _start: that of glibc has 56 on arm64.
const maxStart = 64

// begins: the program begins in the function that has this address. glibc has no unwind table for
// it on arm64 before 2.34, musl has none anywhere.
func (i *image) begins(address uint64) bool {
	return i.begin != 0 && address-i.begin < maxStart
}

var errOutside = errors.New("an address lies outside of the file")

// read fills into from an address of the linker's.
func (i *image) read(address uint64, into []byte) error {
	n, err := i.readSome(address, into)
	if err == nil && n < len(into) {
		return errOutside
	}
	return err
}

// readSome fills as much of into as the segment has.
func (i *image) readSome(address uint64, into []byte) (int, error) {
	for _, l := range i.loads {
		if address < l.Vaddr || address >= l.Vaddr+l.Filesz {
			continue
		}
		at := address - l.Vaddr + l.Off
		into = into[:min(uint64(len(into)), l.Vaddr+l.Filesz-address)]
		if int64(at) < 0 {
			return 0, errOutside
		}
		n, err := i.file.ReadAt(into, int64(at))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return n, err
	}
	return 0, errOutside
}

func (i *image) word32(address uint64) (uint32, error) {
	var b [4]byte
	err := i.read(address, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// sized is a file in memory.
type sized []byte

// ReadAt is io.ReaderAt's.
func (s sized) ReadAt(into []byte, at int64) (int, error) {
	if at < 0 || at >= int64(len(s)) {
		return 0, io.EOF
	}
	n := copy(into, s[at:])
	if n < len(into) {
		return n, io.EOF
	}
	return n, nil
}
