//go:build linux && (amd64 || arm64)

package standin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Linked is a library that was linked against others.
func Linked(library []byte, needed ...string) []byte {
	names, entries := []byte{0}, []elf.Dyn64{}
	for _, name := range needed {
		entries = append(entries, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names = append(append(names, name...), 0)
	}
	return WithTable(library, elf.SHT_DYNAMIC, append(entries, elf.Dyn64{}), names)
}

// WithTable is a library with one more section, and the strings that go with it.
func WithTable(library []byte, kind elf.SectionType, structs any, names []byte) []byte {
	return withSection(library, elf.Section64{Type: uint32(kind)}, structs, names)
}

// WithTexts is a library with one more section, of what a program never changes.
func WithTexts(library, texts []byte) []byte {
	return withSection(library, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC)}, texts, nil)
}

func withSection(library []byte, section elf.Section64, structs any, names []byte) []byte {
	var file elf.Header64
	_, _ = binary.Decode(library, binary.LittleEndian, &file) // Library made it
	sections := make([]elf.Section64, file.Shnum)
	_, _ = binary.Decode(library[file.Shoff:], binary.LittleEndian, sections)

	size := uint64(binary.Size(structs))
	at := uint64(len(library))
	section.Off, section.Size, section.Link = at, size, uint32(file.Shnum)+1
	sections = append(sections, section,
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: at + size, Size: uint64(len(names))})
	file.Shoff, file.Shnum = at+size+uint64(len(names)), file.Shnum+2

	var out bytes.Buffer
	for _, part := range []any{file, library[binary.Size(file):], structs, names, sections} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes everything
	}
	return out.Bytes()
}
