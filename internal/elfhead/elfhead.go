// Package elfhead reads the headers of ELF files that strangers made.
//
// debug/elf reads the names of sections as a whole, and makes as many sections and symbols as a file says that it has: one with a
// hole in it of gigabytes takes all memory. Here a file costs 4 MiB for its sections, 4 KiB for its segments, and no more.
package elfhead

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// MaxSegments is how many program headers a file may have: a large library has a dozen.
const MaxSegments = 64

// Errors of files that are none of those that are read. They are wrapped.
var (
	ErrNotELF  = errors.New("it is no ELF file")
	ErrMachine = errors.New("it is not for a 64-bit little-endian machine")
	ErrHeaders = errors.New("its headers lie")
)

// Sizes of the structs of a 64-bit file.
const (
	fileBytes    = 64
	segmentBytes = 56
	sectionBytes = 64
)

// File is what the headers of a 64-bit little-endian file say. Whatever that is, is a claim of who made it; but no place or size
// of a segment is beyond what a file or a process can have.
type File struct {
	io.ReaderAt
	Machine  elf.Machine
	Entry    uint64       // where the program begins; 0 where it does not
	Segments []elf.Prog64 // program headers

	sections    uint64 // where their headers begin
	count, size uint16 // of these
}

// Read reads the header of a file and its program headers.
func Read(file io.ReaderAt) (*File, error) {
	var h elf.Header64
	if err := binary.Read(io.NewSectionReader(file, 0, fileBytes), binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	switch {
	case string(h.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG:
		return nil, fmt.Errorf("%w: its magic number is %q", ErrNotELF, h.Ident[:len(elf.ELFMAG)])
	case elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return nil, ErrMachine
	case h.Phnum > MaxSegments:
		return nil, fmt.Errorf("%w: %d program headers, more than %d", ErrHeaders, h.Phnum, MaxSegments)
	case h.Phnum > 0 && h.Phentsize != segmentBytes:
		return nil, fmt.Errorf("%w: they have another size", ErrHeaders)
	}
	f := &File{ReaderAt: file, Machine: elf.Machine(h.Machine), Entry: h.Entry, Segments: make([]elf.Prog64, h.Phnum), sections: h.Shoff, count: h.Shnum, size: h.Shentsize}
	if err := f.table(h.Phoff, f.Segments); err != nil {
		return nil, fmt.Errorf("read its program headers: %w", err)
	}
	for i := range f.Segments {
		if s := &f.Segments[i]; s.Off > math.MaxInt64-s.Filesz || s.Vaddr > math.MaxUint64-s.Filesz {
			return nil, fmt.Errorf("%w: a segment is beyond the end of any file", ErrHeaders)
		}
	}
	return f, nil
}

// Sections reads the section headers. A stripped file need not have any, and who does not ask for them takes whatever there is.
func (f *File) Sections() ([]elf.Section64, error) {
	if f.count > 0 && f.size != sectionBytes {
		return nil, fmt.Errorf("%w: those of sections have another size", ErrHeaders)
	}
	all := make([]elf.Section64, f.count)
	if err := f.table(f.sections, all); err != nil {
		return nil, fmt.Errorf("read its section headers: %w", err)
	}
	return all, nil
}

// table reads structs from a place on.
func (f *File) table(at uint64, structs any) error {
	size := binary.Size(structs)
	if size == 0 {
		return nil
	}
	return binary.Read(f.Part(at, uint64(size)), binary.LittleEndian, structs)
}

// Part is a piece of the file. What lies beyond its end is not there.
func (f *File) Part(at, size uint64) *io.SectionReader {
	return io.NewSectionReader(f.ReaderAt, int64(min(at, math.MaxInt64)), int64(min(size, math.MaxInt64))) //nolint:gosec // bounded
}

// Content is what the file has of a segment.
func (f *File) Content(segment *elf.Prog64) *io.SectionReader {
	return f.Part(segment.Off, segment.Filesz)
}

// Loaded is the segment that is loaded to an address and has content there, nil for none.
func (f *File) Loaded(address uint64) *elf.Prog64 {
	for i := range f.Segments {
		if s := &f.Segments[i]; elf.ProgType(s.Type) == elf.PT_LOAD && address >= s.Vaddr && address-s.Vaddr < s.Filesz {
			return s
		}
	}
	return nil
}

// Executed reports whether a segment is loaded as code.
func Executed(segment *elf.Prog64) bool {
	return elf.ProgType(segment.Type) == elf.PT_LOAD && elf.ProgFlag(segment.Flags)&elf.PF_X != 0
}
